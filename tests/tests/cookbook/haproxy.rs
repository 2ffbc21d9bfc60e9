//! HAProxy: a master and workers, by SIGUSR2.

use anyhow::Result;

use crate::http;
use crate::load::Load;
use crate::measure::{twenty_switches, wait_until_serving};
use crate::recipe::Recipe;

#[tokio::test]
async fn haproxy() -> Result<()> {
    let Some(recipe) = Recipe::find("haproxy", "haproxy", &["haproxy", "wrk"])? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let port = software.port;
    let look = async || http::body(port);
    wait_until_serving(&software, &"hello\n".to_owned(), look).await?;
    let expected = ["hello\n", "welcome\n"].map(str::to_owned);
    twenty_switches(&mut software, Load::wrk(port, "/"), expected, look).await?;
    software.keeps_what_it_has(("haproxy.cfg", "nonsense\n"), "unknown keyword", look).await
}
