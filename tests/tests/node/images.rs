//! Images for the node, made without a container engine: the programs that other tests run as well, with the libraries
//! that they load, or as `deploy/images/build` makes them for a release; and the examples with this machine's Python,
//! Node.js and nginx, as their Containerfiles put them together. The names are those of `deploy/` and
//! `examples/deploy`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nudge_tests::{binary, tools};

use crate::node::Node;
use crate::place::{repository, succeed};

/// What tests/run installs as Debian's python3. Another one in the search path may have its library anywhere.
const PYTHON: &str = "/usr/bin/python3";

/// Requests the programs as they are released, which takes minutes more to build. Their images have no library, so
/// nothing starts that is not static.
const RELEASE: &str = "NUDGE_E2E_RELEASE";

/// What of Node.js itself is a package of its own in Debian: it does not start without.
const NODE_PARTS: [&str; 4] = ["acorn", "acorn-walk", "cjs-module-lexer", "undici"];

/// The parts of Python's library that no example loads and that have most of its bytes.
const UNUSED: [&str; 8] =
    ["test", "idlelib", "tkinter", "ensurepip", "lib2to3", "pydoc_data", "distutils", "turtledemo"];

fn is_released() -> bool {
    env::var_os(RELEASE).is_some_and(|value| !value.is_empty())
}

/// Returns how the programs of Nudge are built.
pub(crate) fn profile() -> &'static str {
    if is_released() { "release" } else { "debug" }
}

/// Makes the images and gives them to the node.
pub(crate) fn load(programs: &Programs, node: &Node) -> Result<()> {
    for (name, arguments) in programs.images()? {
        let tar = programs.folder.join(format!("{name}.tar"));
        let mut make = node.tool("make-image");
        make.arg(&tar).arg(format!("{name}:{}", env!("CARGO_PKG_VERSION"))).args(arguments);
        succeed(&mut make).with_context(|| format!("can't make the image {name}"))?;
        succeed(node.tool("load").arg(&tar)).with_context(|| format!("can't load the image {name}"))?;
        fs::remove_file(&tar)?;
    }
    Ok(())
}

/// Nudge's programs and the Rust example, without what only a debugger reads.
pub(crate) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Builds what is missing.
    pub(crate) fn build() -> Result<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images");
        // What a release has left there is read-only.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let mut strip = vec![(binary::example()?, "nudge-example-rust")];
        if is_released() {
            // 3 says that the capability can't be set here: the image has it anyway.
            run(cargo(&repository().join("deploy/images/build")).arg(&folder), &[0, 3])?;
        } else {
            strip.push((binary::debug()?.to_owned(), "nudge-agent"));
            strip.push((binary::injector()?.to_owned(), "nudge-injector"));
        }
        for (program, name) in strip {
            succeed(Command::new("strip").arg(program).arg("-o").arg(folder.join(name)))?;
        }
        Ok(Self { folder })
    }

    /// Returns one of Nudge's, at this place with this mode.
    fn nudge(&self, name: &str, place: &str) -> [OsString; 2] {
        let [_, argument] = program(&self.folder.join(name), place);
        [if is_released() { "--file" } else { "--program" }.into(), argument]
    }

    /// Returns names, and the arguments of `make-image`.
    fn images(&self) -> Result<Vec<(&'static str, Vec<OsString>)>> {
        let nudge = |program: &str, place: &str, command: &str| {
            let name = place.split(':').next().unwrap_or_default();
            let words = ["--user", "65532:65532", "--entrypoint", name, "--cmd", command].map(OsString::from);
            self.nudge(program, place).into_iter().chain(words).collect::<Vec<_>>()
        };
        let example = |files: Vec<OsString>, entrypoint: &[&str]| {
            let words = entrypoint.iter().flat_map(|word| ["--entrypoint", word]).map(OsString::from);
            let user = ["--user", "10001:10001"].map(OsString::from);
            files.into_iter().chain(user).chain(words).collect::<Vec<_>>()
        };
        let python = python()?;
        let script = |app: &str| python.iter().cloned().chain(source(app, "/app.py")).collect();
        let busybox = ["--busybox".into(), runtime()?.join("bin/busybox").into()];
        let node = node()?.into_iter().chain(source("node/app.mjs", "/app.mjs")).collect();
        let agent = self.nudge("nudge-agent", "/usr/bin/nudge-agent:0111");
        // setpriv, as Debian's base image has it.
        let setpriv = program(&tools::look("setpriv").context("no setpriv")?, "/usr/bin/setpriv");
        let shell =
            busybox.iter().cloned().chain(agent).chain(setpriv).chain(source("shell/app.sh", "/app.sh")).collect();
        let nginx = program(&tools::look("nginx").context("no nginx")?, "/usr/sbin/nginx");
        let nginx = busybox.iter().cloned().chain(nginx).chain(source("nginx/app.sh", "/app.sh"));
        let nginx = nginx.chain(source("nginx/nginx.conf.template", "/nginx.conf.template")).collect();
        let git = ["/usr/bin/git", "/usr/lib/git-core/git-remote-https", "/usr/bin/ssh", "/usr/bin/ssh-keygen"];
        let git = git.into_iter().flat_map(|path| program(Path::new(path), path));
        let sources =
            busybox.iter().cloned().chain(git).chain(nudge("nudge-injector", "/nudge-injector:0555", "serve"));
        let rust = program(&self.folder.join("nudge-example-rust"), "/app").to_vec();
        Ok(vec![
            ("nudge-agent", nudge("nudge-agent", "/nudge-agent:0111", "run")),
            ("nudge-agent-kill", nudge("nudge-agent", "/nudge-agent:0111:cap_kill", "run")),
            ("nudge-injector", nudge("nudge-injector", "/nudge-injector:0555", "serve")),
            ("nudge-sources", sources.collect()),
            ("nudge-example-python", example(script("python/app.py"), &["python3", "/app.py"])),
            ("nudge-example-webhook", example(script("webhook/app.py"), &["python3", "/app.py"])),
            ("nudge-example-node", example(node, &["node", "/app.mjs"])),
            ("nudge-example-shell", example(shell, &["sh", "/app.sh"])),
            ("nudge-example-rust", example(rust, &["/app"])),
            ("nudge-example-nginx", example(nginx, &["sh", "/app.sh"])),
        ])
    }
}

/// Returns a file of an example.
fn source(file: &str, place: &str) -> [OsString; 2] {
    let path = repository().join("examples").join(file);
    ["--file".into(), format!("{}={place}:0644", path.display()).into()]
}

/// Returns a program of this machine with the libraries that it loads.
fn program(path: &Path, place: &str) -> [OsString; 2] {
    ["--program".into(), format!("{}={place}", path.display()).into()]
}

/// Node.js, of which Debian keeps parts apart.
fn node() -> Result<Vec<OsString>> {
    let found = tools::look("node").context("no node")?.canonicalize()?;
    let mut arguments = program(&found, "/usr/bin/node").to_vec();
    if found == Path::new("/usr/bin/node") {
        let parts = NODE_PARTS.map(|name| format!("/usr/share/nodejs/{name}"));
        let parts = parts.into_iter().filter(|part| Path::new(part).is_dir());
        arguments.extend(parts.flat_map(|part| ["--tree".into(), format!("{part}={part}").into()]));
    }
    Ok(arguments)
}

/// Python with its library, and the libraries that TLS needs.
fn python() -> Result<Vec<OsString>> {
    let print =
        "import sysconfig, _ssl, _hashlib; print(sysconfig.get_path('stdlib'), _ssl.__file__, _hashlib.__file__)";
    // -I: neither the user's packages nor variables.
    let printed = succeed(Command::new(PYTHON).args(["-I", "-c", print]))?;
    let [library, modules @ ..] = &printed.split_whitespace().collect::<Vec<_>>()[..] else {
        anyhow::bail!("{PYTHON} does not say where its library is");
    };
    let mut arguments = program(Path::new(PYTHON), PYTHON).to_vec();
    arguments.extend(["--tree".into(), format!("{library}={library}").into()]);
    arguments.extend(modules.iter().flat_map(|module| program(Path::new(module), module)));
    arguments.extend(UNUSED.iter().flat_map(|name| ["--without", name]).map(OsString::from));
    Ok(arguments)
}

/// Returns what `tests/node/debian-runtime` has fetched.
fn runtime() -> Result<PathBuf> {
    Ok(crate::node::node_home()?.join("runtime"))
}

/// Returns a command that builds, without the variables that cargo has set for this test: build scripts would take them
/// for changed settings.
fn cargo(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(repository());
    for (name, _) in env::vars_os() {
        let name_bytes = name.as_encoded_bytes();
        if name_bytes.starts_with(b"CARGO_MANIFEST_") || name_bytes.starts_with(b"CARGO_PKG_") {
            command.env_remove(name);
        }
    }
    command
}

fn run(command: &mut Command, good: &[i32]) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("can't run {command:?}"))?;
    ensure!(status.code().is_some_and(|code| good.contains(&code)), "{command:?} has failed: {status}");
    Ok(())
}
