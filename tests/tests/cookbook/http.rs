//! A client that asks once, over a connection of its own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Returns the headers and the body of a page.
pub(crate) fn get(port: u16, path: &str) -> Result<(String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (head, body) = reply.split_once("\r\n\r\n").context("no reply")?;
    ensure!(head.split(' ').nth(1) == Some("200"), "{head}");
    Ok((head.to_owned(), body.to_owned()))
}

/// Returns the body alone.
pub(crate) fn body(port: u16) -> Result<String> {
    Ok(get(port, "/")?.1)
}
