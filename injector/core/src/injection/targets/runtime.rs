//! The runtimes that catch a signal by themselves. For the agent they look as if the application caught the signal, so
//! it sends the signal. A pod seldom shows its runtime; if it does, its author is warned.

use k8s_openapi::api::core::v1::Container;
use nudge_protocol::NotifySignal::{self, Hup, Usr1, Usr2};

use crate::injection::request::annotations::NOTIFY;

/// The variables that only a JVM reads.
const JVM_VARIABLES: [&str; 3] = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"];

/// Returns a warning about a possible effect of the signal on the container.
pub(super) fn warning(container: &Container, signal: NotifySignal) -> Option<String> {
    let runtime = runtime_of(container)?;
    let advice = match (runtime, signal) {
        ("java", Hup) | ("ruby" | "php", _) => {
            format!("ends on {signal} unless the application handles it; make sure that it does, or change {NOTIFY}")
        }
        ("java", Usr2) => format!("uses SIGUSR2 itself and crashes when another process sends it; change {NOTIFY}"),
        ("node", Usr1) => format!("starts its debugger on SIGUSR1; set {NOTIFY} to SIGUSR2"),
        _ => return None,
    };
    Some(format!("container {} runs {runtime}, which {advice}", container.name))
}

/// Returns the runtime of a container, by the first word of the command, or by variables.
fn runtime_of(container: &Container) -> Option<&'static str> {
    let mut words = container.command.iter().flatten().chain(container.args.iter().flatten());
    let program = words.next().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    // The name may end with a version, such as php8.2.
    let program = program.trim_end_matches(|end: char| end.is_ascii_digit() || end == '.');
    let is_jvm = || container.env.iter().flatten().any(|variable| JVM_VARIABLES.contains(&variable.name.as_str()));
    match program {
        "java" => Some("java"),
        "ruby" => Some("ruby"),
        "php" => Some("php"),
        "node" | "nodejs" => Some("node"),
        _ => is_jvm().then_some("java"),
    }
}
