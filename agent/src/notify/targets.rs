//! Decides which processes of a container get the signal. Pure, over any table of processes.
//!
//! `SIGUSR1`, `SIGUSR2` and `SIGHUP` end a process that has no handler (signal(7)), so only processes with a handler
//! get the signal. From the container's first process downwards, the topmost such process of every branch gets it: an
//! application below a shell or an init, and not the application's workers, which it signals itself. An init that
//! catches every signal and passes it on (dumb-init) gets none: the signal would reach processes without a handler.

use std::collections::VecDeque;

use crate::proc::{Process, ProcessStatus, ProcessTable};

/// The maximum number of processes that are examined. No usual application has more below a process without a handler.
const MAX_PROCESSES: usize = 4096;

/// The result of [`select`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// The processes that get the signal.
    pub(super) targets: Vec<Process>,
    /// The number of living processes that were examined.
    pub(super) examined: usize,
    /// Whether at least one target ignores the signal.
    pub(super) ignored: bool,
    /// Whether at least one target would pass the signal on to other processes.
    pub(super) passes_on: bool,
}

/// Selects from the trees below `roots` the topmost processes that catch `signal` (a number).
pub(super) fn select(table: &mut dyn ProcessTable, roots: &[i32], signal: i32) -> Selection {
    let mut selection = Selection::default();
    let mut queue: VecDeque<i32> = roots.iter().copied().collect();
    let mut queued: Vec<i32> = roots.to_vec();
    while let Some(pid) = queue.pop_front() {
        let Some((process, status)) = table.process(pid) else { continue };
        if !status.zombie {
            selection.examined += 1;
            if status.catches(signal) && !passes_on(table, pid, &status) {
                selection.targets.push(process);
                continue;
            }
            selection.passes_on |= status.catches(signal);
            selection.ignored |= status.ignores(signal);
        }
        for child in table.children(pid) {
            // A table that changes while it is read can show a process twice.
            if queued.len() < MAX_PROCESSES && !queued.contains(&child) {
                queued.push(child);
                queue.push_back(child);
            }
        }
    }
    selection
}

/// Returns whether the process is an init that passes its signals on. Such an init catches all signals, also those of
/// job control, which runtimes that catch many (Go, Java, Ruby) leave alone. A program may request all of them for
/// itself: it is an init if a living process is below it. Whether an init blocks them can't be seen: while it waits by
/// sigwait(3), the kernel shows them as not blocked.
fn passes_on(table: &mut dyn ProcessTable, pid: i32, status: &ProcessStatus) -> bool {
    const JOB_CONTROL_SIGNALS: [i32; 4] = [libc::SIGCONT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let catches_all = JOB_CONTROL_SIGNALS.into_iter().all(|signal| status.catches(signal));
    catches_all
        && table.children(pid).into_iter().any(|child| table.process(child).is_some_and(|(_, status)| !status.zombie))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const USR1: i32 = libc::SIGUSR1;

    #[derive(Default)]
    struct Fake(BTreeMap<i32, ProcessStatus>);

    impl Fake {
        fn with(mut self, pid: i32, parent: i32, catches: bool) -> Self {
            let caught = if catches { 1 << (USR1 - 1) } else { 0 };
            self.0.insert(pid, ProcessStatus { parent, uid: 0, zombie: false, caught, ignored: 0 });
            self
        }
    }

    impl ProcessTable for Fake {
        fn children(&mut self, pid: i32) -> Vec<i32> {
            self.0.iter().filter(|(_, status)| status.parent == pid).map(|(pid, _)| *pid).collect()
        }
        fn process(&mut self, pid: i32) -> Option<(Process, ProcessStatus)> {
            self.0.get(&pid).map(|status| (Process { pid, started: 0 }, *status))
        }
    }

    fn targets(mut table: Fake) -> Vec<i32> {
        select(&mut table, &[1], USR1).targets.iter().map(|process| process.pid).collect()
    }

    #[test]
    fn the_topmost_that_catches_it() {
        assert_eq!(targets(Fake::default().with(1, 0, true).with(2, 1, true)), [1], "a server and its workers");
        assert_eq!(targets(Fake::default().with(1, 0, false).with(2, 1, true).with(3, 2, true)), [2], "below a shell");
        let deep = Fake::default().with(1, 0, false).with(2, 1, false).with(3, 2, false).with(4, 3, true);
        assert_eq!(targets(deep), [4], "below an init and a shell");
        let two = Fake::default().with(1, 0, false).with(2, 1, true).with(3, 1, true);
        assert_eq!(targets(two), [2, 3], "two applications below one init");
        assert!(targets(Fake::default().with(1, 0, false).with(2, 1, false)).is_empty());
        assert!(targets(Fake::default()).is_empty());
    }

    /// The signals that real programs catch, as `/proc/PID/status` shows it (`SigCgt`).
    mod caught {
        /// dumb-init 1.2, with and without `-c`. It waits by sigwait(3), and the kernel shows nothing as blocked
        /// meanwhile.
        pub(super) const DUMB_INIT: u64 = 0x7ffb_feff;
        /// A program in Go that requests every signal, as inits written in Go do.
        pub(super) const GO_ALL: u64 = 0xffff_fffd_7ffb_feff;
        /// A program in Go that requests `SIGUSR1`, and one that requests nothing.
        pub(super) const GO: u64 = 0xffff_fffd_7fc1_fefd;
        pub(super) const JAVA: u64 = 0x2000_0001_0100_5ecd;
        /// Node.js 20 with a handler for `SIGUSR1` or without: its debugger.
        pub(super) const NODE: u64 = 0x1_0000_4e02;
        /// Python with a handler for `SIGUSR1`.
        pub(super) const PYTHON: u64 = 0x202;
        /// A shell with `trap : TERM INT CHLD USR1`, and one that waits.
        pub(super) const TRAP: u64 = 0x1_4200;
        pub(super) const SHELL: u64 = 0x1_0002;
        /// s6-svscan and s6-supervise, which read signals from a file descriptor.
        pub(super) const S6: u64 = 0x1000;
        /// supervisord, which handles SIGHUP and SIGUSR2 itself.
        pub(super) const SUPERVISORD: u64 = 0x1_4807;
        /// tini, with and without `-g`, catatonit, sleep.
        pub(super) const NOTHING: u64 = 0;
    }

    /// Returns a table of processes with these parents and caught signals; the first one has the ID 1.
    fn tree(processes: &[(i32, u64)]) -> Fake {
        let status = |&(parent, caught)| ProcessStatus { parent, uid: 0, zombie: false, caught, ignored: 0 };
        Fake((1..).zip(processes.iter().map(status)).collect())
    }

    #[test]
    fn an_init_that_passes_all_signals_on_gets_none() {
        use caught::{DUMB_INIT, GO, GO_ALL, JAVA, NODE, NOTHING, PYTHON, SHELL, TRAP};
        for init in [DUMB_INIT, GO_ALL] {
            for app in [GO, JAVA, NODE, PYTHON, TRAP] {
                assert_eq!(targets(tree(&[(0, init), (1, app)])), [2], "{app:x} below {init:x}");
                let helpers = tree(&[(0, init), (1, SHELL), (2, NOTHING), (2, app), (4, app)]);
                assert_eq!(targets(helpers), [4], "{app:x} beside a helper, below a shell below {init:x}");
            }
            assert!(targets(tree(&[(0, init), (1, NOTHING)])).is_empty(), "it would end what is below {init:x}");
            assert!(targets(tree(&[(0, init), (1, init), (2, NOTHING)])).is_empty(), "two inits");
        }
    }

    #[test]
    fn below_all_other_inits_and_alone_an_application_is_found() {
        use caught::{GO, GO_ALL, JAVA, NODE, NOTHING, PYTHON, S6, SHELL, SUPERVISORD, TRAP};
        for app in [GO, JAVA, NODE, PYTHON, TRAP, GO_ALL] {
            assert_eq!(targets(tree(&[(0, app)])), [1], "{app:x} alone");
            for init in [NOTHING, SHELL, S6, SUPERVISORD] {
                assert_eq!(targets(tree(&[(0, init), (1, app)])), [2], "{app:x} below {init:x}");
            }
        }
        assert_eq!(targets(tree(&[(0, TRAP), (1, PYTHON)])), [1], "a shell with a trap is the application");
        let mut ended = tree(&[(0, GO_ALL), (1, NOTHING)]);
        ended.0.get_mut(&2).unwrap().zombie = true;
        assert_eq!(targets(ended), [1], "there is nobody to pass it on to");
    }

    #[test]
    fn a_zombie_gets_nothing_and_a_process_that_ignores_the_signal_is_noticed() {
        let mut table = Fake::default().with(1, 0, true);
        table.0.get_mut(&1).unwrap().zombie = true;
        assert_eq!(select(&mut table, &[1], USR1), Selection::default());

        let mut table = Fake::default().with(1, 0, false);
        table.0.get_mut(&1).unwrap().ignored = 1 << (USR1 - 1);
        assert!(select(&mut table, &[1], USR1).ignored);
    }

    proptest! {
        #[test]
        fn every_target_has_a_handler_and_no_process_above_it_has(rows in vec((0i32..20, any::<bool>()), 1..20)) {
            let mut table = Fake::default();
            for (at, (parent, catches)) in rows.iter().enumerate() {
                let pid = i32::try_from(at).unwrap() + 1;
                // Parents are older, except for a few impossible loops that must do no harm.
                table = table.with(pid, *parent, *catches);
            }
            let all = table.0.clone();
            for target in select(&mut table, &[1], USR1).targets {
                prop_assert!(all[&target.pid].catches(USR1));
                let mut above = target.pid;
                for _ in 0..30 {
                    if above == 1 { break }
                    above = all[&above].parent;
                    prop_assert!(above == 0 || !all.contains_key(&above) || above == target.pid || !all[&above].catches(USR1) || above == 1 && !all[&1].catches(USR1));
                    if !all.contains_key(&above) { break }
                }
            }
        }
    }
}
