//! Network namespaces, as pods have them: this machine's own network is left alone, and all is gone with the test.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use nudge_tests::tools;

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own. Its child processes are in that namespace, too, and a socket stays in
/// the namespace where it was created.
pub(crate) struct Namespace {
    jobs: Sender<Job>,
    thread: i32,
}

impl Namespace {
    fn new() -> Result<nix::Result<Self>> {
        let (jobs, work) = channel::<Job>();
        let (sender, entered) = channel();
        thread::spawn(move || {
            // A test that has ended waits for no answer.
            let _ = sender.send(unshare(CloneFlags::CLONE_NEWNET).map(|()| gettid().as_raw()));
            for job in work {
                job();
            }
        });
        Ok(entered.recv()?.map(|thread| Self { jobs, thread }))
    }

    /// Begins to do something there; what is requested next comes after it.
    pub(crate) fn begin(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        self.jobs.send(Box::new(job)).map_err(|_| anyhow!("the namespace's thread has ended"))
    }

    /// Does something there.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (sender, result) = channel();
        self.begin(move || {
            // See above.
            let _ = sender.send(job());
        })?;
        result.recv().context("it has panicked")
    }

    /// Connects from there, for use on this thread.
    pub(crate) fn connect(&self, to: SocketAddr) -> Result<tokio::net::TcpStream> {
        let stream = self.run(move || TcpStream::connect(to))?.with_context(|| format!("can't connect to {to}"))?;
        stream.set_nonblocking(true)?;
        Ok(tokio::net::TcpStream::from_std(stream)?)
    }

    fn ip(&self, ip: &Path, arguments: &str) -> Result<()> {
        let mut command = Command::new(ip);
        command.args(arguments.split(' '));
        let output = self.run(move || command.output())??;
        ensure!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

/// A pod, another one, and the node's kubelet, each of the two on a network with the pod.
pub(crate) struct Network {
    pub(crate) pod: Namespace,
    pub(crate) neighbour: Namespace,
    pub(crate) kubelet: Namespace,
}

impl Network {
    /// The pod's address for its neighbour.
    pub(crate) const FOR_NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
    /// The pod's address for the kubelet.
    pub(crate) const FOR_KUBELET: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);

    /// Returns `None`, with the reason printed, if that is not allowed.
    pub(crate) fn of_a_pod() -> Result<Option<Self>> {
        let Some(ip) = tools::find("ip")? else { return Ok(None) };
        let network = match (Namespace::new()?, Namespace::new()?, Namespace::new()?) {
            (Ok(pod), Ok(neighbour), Ok(kubelet)) => Self { pod, neighbour, kubelet },
            (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => {
                tools::skipped(&format!("no network namespace can be made here: {error}"));
                return Ok(None);
            }
        };
        let Self { pod, neighbour, kubelet } = &network;
        for (other, name, own) in [(neighbour, "eth1", Self::FOR_NEIGHBOUR), (kubelet, "eth2", Self::FOR_KUBELET)] {
            let pair = format!("link add {name} type veth peer name eth0 netns {}", other.thread);
            if let Err(error) = pod.ip(&ip, &pair) {
                tools::skipped(&format!("no virtual network can be made here: {error}"));
                return Ok(None);
            }
            let [a, b, c, _] = own.octets();
            for (namespace, name, address) in [(pod, name, own), (other, "eth0", Ipv4Addr::new(a, b, c, 2))] {
                namespace.ip(&ip, "link set lo up")?;
                namespace.ip(&ip, &format!("address add {address}/24 dev {name}"))?;
                namespace.ip(&ip, &format!("link set {name} up"))?;
            }
        }
        Ok(Some(network))
    }
}
