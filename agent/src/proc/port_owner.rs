//! Finds the process that listens at an address, as `/proc/net/tcp` and `/proc/PID/fd` show it (proc(5)).

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nudge_protocol::bounded_text::one_line;

use super::process_table::process_ids;

/// The maximum length of a process's name, in bytes (proc(5)).
const MAX_NAME_BYTES: usize = 16;
/// The state `TCP_LISTEN` in `/proc/net/tcp`.
const LISTEN_STATE: &str = "0A";

/// The process that listens at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortOwner {
    /// A process that the agent can see.
    Process {
        /// The ID of the process.
        pid: i32,
        /// The name that the process has given itself.
        name: String,
    },
    /// A process of this user that the agent can't see.
    User(u32),
    /// A process that can't be found.
    Unknown,
}

impl fmt::Display for PortOwner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name } => write!(out, "process {pid} ({name})"),
            Self::User(uid) => write!(out, "a process of user {uid}, which the agent can't see"),
            Self::Unknown => out.write_str("another process"),
        }
    }
}

/// Finds the process that listens at `address`, or at all addresses.
pub fn find_port_owner(address: SocketAddr) -> PortOwner {
    let files = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let sockets = files.into_iter().filter_map(|file| fs::read_to_string(file).ok());
    let Some(socket) = sockets.into_iter().find_map(|table| parse_listening_socket(&table, address)) else {
        return PortOwner::Unknown;
    };
    let link = format!("socket:[{}]", socket.inode);
    let holds_port = |pid: &i32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == link.as_str()))
    };
    match process_ids().filter(holds_port).min() {
        Some(pid) => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            PortOwner::Process { pid, name: one_line(name.trim_end(), MAX_NAME_BYTES) }
        }
        None => PortOwner::User(socket.uid),
    }
}

/// A socket that listens at the port of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListeningSocket {
    /// The user who has created the socket.
    pub uid: u32,
    /// The number of the socket in `/proc/PID/fd`.
    pub inode: u64,
}

/// Reads from `/proc/net/tcp` or `tcp6` the socket that listens at `address`, or at all addresses.
pub fn parse_listening_socket(table: &str, address: SocketAddr) -> Option<ListeningSocket> {
    let is_address = |local: &str| {
        parse_address(local).is_some_and(|(ip, port)| {
            port == address.port() && (ip.is_unspecified() || ip.to_canonical() == address.ip().to_canonical())
        })
    };
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _remote, state) = (fields.next()?, fields.next()?, fields.next()?);
        // Queues, timer and retransmissions come before the user, and a time-out before the inode.
        let (uid, inode) = (fields.nth(3)?, fields.nth(1)?);
        let is_wanted = state == LISTEN_STATE && is_address(local);
        is_wanted.then(|| Some(ListeningSocket { uid: uid.parse().ok()?, inode: inode.parse().ok()? }))?
    })
}

/// Reads an address such as `0100007F:2329`: words of 32 bits as they are in the memory of this machine.
fn parse_address(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let word = |index: usize| Some(u32::from_str_radix(ip.get(index..index + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index * 8)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some((ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_listens_is_found_by_address_or_by_all_addresses() {
        let own_pid = i32::try_from(std::process::id()).unwrap();
        let first = TcpListener::bind("127.0.8.1:0").unwrap();
        let unspecified = TcpListener::bind("0.0.0.0:0").unwrap();
        let find = |listener: &TcpListener, ip: [u8; 4]| {
            find_port_owner(SocketAddr::new(ip.into(), listener.local_addr().unwrap().port()))
        };
        for found in [find(&first, [127, 0, 8, 1]), find(&unspecified, [127, 0, 8, 2])] {
            assert!(
                matches!(&found, PortOwner::Process { pid, name } if *pid == own_pid && !name.is_empty()),
                "{found}"
            );
        }
        // The port of the first listener stays taken, so no other test listens there.
        assert_eq!(find(&first, [127, 0, 8, 2]), PortOwner::Unknown);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_table_of_sockets() {
        const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0700000A:2329 0100000A:A1B2 01 00000000:00000000 00:00000000 00000000   102        0 4709 1 0000000000000000
   1: 0100007F:2329 00000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 4711 1 0000000000000000
   2: B80D01200000000000000000010000AA:2329 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  65532        0 4712 1 0
   3: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0
";
        let found = |address: &str| parse_listening_socket(TABLE, address.parse().unwrap());
        assert_eq!(found("127.0.0.1:9001"), Some(ListeningSocket { uid: 101, inode: 4711 }));
        assert_eq!(found("[2001:db8::aa00:1]:9001"), Some(ListeningSocket { uid: 65532, inode: 4712 }));
        assert_eq!(found("10.0.0.7:8080"), Some(ListeningSocket { uid: 0, inode: 4713 }), "of all addresses");
        assert_eq!(found("10.0.0.7:9001"), None, "a connection does not listen");
        assert_eq!(found("127.0.0.1:9002"), None);
    }

    proptest! {
        #[test]
        fn nothing_makes_the_parser_panic(table in "\\PC{0,300}", local in "[0-9A-F:é]{0,40}") {
            let line = format!("head\n 0: {local} x 0A a b c 1 0 2\n{table}");
            let _ = parse_listening_socket(&line, "127.0.0.1:1".parse().unwrap());
        }
    }
}
