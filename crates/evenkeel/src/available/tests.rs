//! The files of systems of several kinds, laid out in temporary folders.

use super::*;
use crate::fixture::Tree;

/// A system whose process has these lines in `/proc/self`.
struct System {
    tree: Tree,
}

impl System {
    fn new(cgroup: &str, mountinfo: &str) -> Self {
        let tree = Tree::new();
        tree.file("proc/self/cgroup", cgroup);
        tree.file("proc/self/mountinfo", mountinfo);
        Self { tree }
    }

    fn with(self, file: &str, text: &str) -> Self {
        self.tree.file(format!("root{file}"), text);
        self
    }

    fn quota(&self) -> Option<Quota> {
        let (proc_root, file_root) = (self.tree.root().join("proc"), self.tree.root().join("root"));
        Source { proc_root, file_root }.quota()
    }

    /// The tightest quota in thousandths of a CPU, and the file it is from as the process names it.
    fn tightest(&self) -> Option<(u64, String)> {
        let Quota { cpus, file } = self.quota()?;
        let file = file.strip_prefix(self.tree.root().join("root")).unwrap();
        Some((cpus.0, format!("/{}", file.display())))
    }
}

fn found(millis: u64, file: &str) -> Option<(u64, String)> {
    Some((millis, file.to_owned()))
}

const V2_MOUNT: &str = "\
22 1 0:21 / /proc rw,nosuid shared:12 - proc proc rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate
";

const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup ro,nosuid shared:4 - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/cpuset rw,nosuid shared:10 - cgroup cgroup rw,cpuset
34 31 0:31 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
";

#[test]
fn tighter_ancestor_wins_in_version_2() {
    let system = System::new("0::/a.slice/b.service/c\n", V2_MOUNT)
        .with("/sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n")
        .with("/sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n")
        .with("/sys/fs/cgroup/a.slice/b.service/c/cpu.max", "400000 100000\n");
    assert_eq!(system.tightest(), found(1500, "/sys/fs/cgroup/a.slice/cpu.max"));
}

#[test]
fn sibling_cgroup_does_not_limit() {
    let system = System::new("0::/a\n", V2_MOUNT)
        .with("/sys/fs/cgroup/a/cpu.max", "max 100000\n")
        .with("/sys/fs/cgroup/ab/cpu.max", "10000 100000\n")
        .with("/sys/fs/cgroup/a/child/cpu.max", "10000 100000\n");
    assert_eq!(system.tightest(), None, "V1");
}

#[test]
fn all_levels_count_in_version_1() {
    let cgroup = "4:memory:/m\n3:cpuset:/\n2:cpu,cpuacct:/user/job\n1:name=systemd:/x\n";
    let system = System::new(cgroup, V1_MOUNTS)
        .with("/sys/fs/cgroup/cpu,cpuacct/user/job/cpu.cfs_quota_us", "-1\n")
        .with("/sys/fs/cgroup/cpu,cpuacct/user/job/cpu.cfs_period_us", "100000\n")
        .with("/sys/fs/cgroup/cpu,cpuacct/user/cpu.cfs_quota_us", "25000\n")
        .with("/sys/fs/cgroup/cpu,cpuacct/user/cpu.cfs_period_us", "50000\n")
        .with("/sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "1000\n")
        .with("/sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n");
    assert_eq!(system.tightest(), found(500, "/sys/fs/cgroup/cpu,cpuacct/user/cpu.cfs_quota_us"));
}

#[test]
fn hybrid_system_is_limited_by_the_side_that_has_the_controller() {
    let mounts = format!("{V1_MOUNTS}41 31 0:38 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw\n");
    let cgroup = "2:cpu,cpuacct:/job\n1:name=systemd:/system/job\n0::/system/job\n";
    let system = System::new(cgroup, &mounts)
        .with("/sys/fs/cgroup/unified/system/job/cgroup.procs", "1\n")
        .with("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n")
        .with("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    assert_eq!(system.tightest(), found(3000, "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us"));
}

#[test]
fn controller_that_moved_to_version_2_counts_on_a_hybrid_system() {
    let mounts = "\
33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
    let system =
        System::new("3:cpuset:/\n0::/job\n", mounts).with("/sys/fs/cgroup/unified/job/cpu.max", "200000 100000\n");
    assert_eq!(system.tightest(), found(2000, "/sys/fs/cgroup/unified/job/cpu.max"));
}

#[test]
fn bind_mounted_cgroup_of_a_container_is_its_top() {
    let mounts = "\
700 699 0:29 /docker/0a1b /sys/fs/cgroup/cpu,cpuacct ro master:9 - cgroup cgroup rw,cpu,cpuacct
";
    let system = System::new("4:cpuacct,cpu:/docker/0a1b\n", mounts)
        .with("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "120000\n")
        .with("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_eq!(system.tightest(), found(1200, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"));
}

#[test]
fn cgroup_below_a_bind_mount_and_its_top_both_count() {
    let mounts = "700 699 0:29 /pods/p1 /cg ro - cgroup2 cgroup rw\n";
    let system = System::new("0::/pods/p1/main/worker\n", mounts)
        .with("/cg/cpu.max", "90000 100000\n")
        .with("/cg/main/worker/cpu.max", "80000 100000\n");
    assert_eq!(system.tightest(), found(800, "/cg/main/worker/cpu.max"));
    let system = system.with("/cg/main/worker/cpu.max", "max 100000\n");
    assert_eq!(system.tightest(), found(900, "/cg/cpu.max"));
}

#[test]
fn mount_of_another_cgroup_does_not_limit() {
    let mounts = "700 699 0:29 /pods/p1 /cg ro - cgroup2 cgroup rw\n";
    for own in ["0::/pods/p10\n", "0::/pods\n", "0::/\n", "0::/../pods/p1\n"] {
        let system = System::new(own, mounts).with("/cg/cpu.max", "10000 100000\n");
        assert_eq!(system.tightest(), None, "V1: {own}");
    }
}

#[test]
fn container_that_is_shown_the_host_path_is_limited_by_what_is_there() {
    // The path is the host's, the mount a namespaced one: the folders in between don't exist here.
    let system =
        System::new("0::/system.slice/docker-0a1b.scope\n", V2_MOUNT).with("/sys/fs/cgroup/cpu.max", "250000 100000\n");
    assert_eq!(system.tightest(), found(2500, "/sys/fs/cgroup/cpu.max"));
}

#[test]
fn process_above_its_namespace_root_is_not_limited_by_the_root() {
    let system = System::new("0::/../other\n", V2_MOUNT).with("/sys/fs/cgroup/cpu.max", "10000 100000\n");
    assert_eq!(system.tightest(), None, "V1");
}

#[test]
fn mount_from_above_the_namespace_root_is_followed() {
    let mounts = "700 699 0:29 /.. /cg ro - cgroup2 cgroup rw\n";
    let system = System::new("0::/../other/leaf\n", mounts)
        .with("/cg/other/cpu.max", "50000 100000\n")
        .with("/cg/cpu.max", "100000 100000\n");
    assert_eq!(system.tightest(), found(500, "/cg/other/cpu.max"));
}

#[test]
fn hidden_names_leave_the_top_of_the_mount() {
    let mounts = "700 699 0:29 /../.. /cg ro - cgroup2 cgroup rw\n";
    let system = System::new("0::/leaf\n", mounts)
        .with("/cg/leaf/cpu.max", "10000 100000\n")
        .with("/cg/cpu.max", "200000 100000\n");
    assert_eq!(system.tightest(), found(2000, "/cg/cpu.max"), "V1: /cg/leaf is another cgroup");
}

#[test]
fn covered_mount_is_not_read() {
    let mounts = "\
30 23 0:26 / /cg rw - cgroup2 cgroup2 rw
31 30 0:27 / /cg rw - tmpfs tmpfs rw
";
    let system = System::new("0::/\n", mounts).with("/cg/cpu.max", "10000 100000\n");
    assert_eq!(system.tightest(), None);
}

#[test]
fn escaped_blanks_in_mount_points_are_read() {
    let mounts = r"30 23 0:26 / /my\040cgroups\134x rw - cgroup2 cgroup2 rw";
    let system = System::new("0::/\n", mounts).with("/my cgroups\\x/cpu.max", "70000 100000\n");
    assert_eq!(system.tightest(), found(700, "/my cgroups\\x/cpu.max"));
    for (text, plain) in [("a\\011b", Some("a\tb")), ("a\\", None), ("\\04", None), ("\\999", None)] {
        assert_eq!(unescape(text).as_deref(), plain, "{text:?}");
    }
}

#[test]
fn system_without_cgroups_has_no_quota() {
    let nowhere = Source { proc_root: "/nonexistent".into(), file_root: "/nonexistent".into() };
    assert_eq!(nowhere.quota(), None);
    assert_eq!(System::new("", "22 1 0:21 / /proc rw - proc proc rw\n").tightest(), None);
    assert_eq!(System::new("0::/a\n", V2_MOUNT).tightest(), None, "no files below the mount");
}

#[test]
fn garbage_in_a_limit_is_no_limit() {
    let garbage = ["", "max", "100000", "x 100000", "100000 y", "100000 0", "0 100000", "-5 100000", "\0"];
    for text in garbage {
        let system = System::new("0::/a\n", V2_MOUNT).with("/sys/fs/cgroup/a/cpu.max", text);
        assert_eq!(system.tightest(), None, "{text:?}");
        let system = system.with("/sys/fs/cgroup/cpu.max", "300000 100000\n");
        assert_eq!(system.tightest(), found(3000, "/sys/fs/cgroup/cpu.max"), "{text:?}");
    }
}

#[test]
fn garbled_lines_do_not_hide_the_good_ones() {
    let cgroup = "\n::\n0\n0:\nx:y\n0::relative\n7:cpu:/a/../b\n0::/a\n";
    let mounts = format!("\n - \n30\n30 23 0:26 / /cg\n1 2 3 \\4 /cg rw - cgroup2 c rw\n{V2_MOUNT}");
    let system = System::new(cgroup, &mounts).with("/sys/fs/cgroup/a/cpu.max", "60000 100000\n");
    assert_eq!(system.tightest(), found(600, "/sys/fs/cgroup/a/cpu.max"));
}

#[test]
fn workers_are_the_mask_or_the_quota_rounded_up() {
    let cases = [
        (8, None, 8),
        (8, Some("150000 100000"), 2),
        (8, Some("100001 100000"), 2),
        (8, Some("100000 100000"), 1),
        (8, Some("1000 100000"), 1),
        (2, Some("800000 100000"), 2),
        (2, Some("18446744073709551615 1"), 2),
    ];
    for (mask, limit, workers) in cases {
        let quota = limit.map(|text| Quota {
            cpus: MilliCpus::from_quota(Budget::parse(text).unwrap()).unwrap(),
            file: "cpu.max".into(),
        });
        let cpus = AvailableCpus { affinity: NonZeroUsize::new(mask).unwrap(), quota };
        assert_eq!(cpus.workers(), workers, "V2: {cpus}");
    }
}

#[test]
fn this_machine_has_a_cpu_for_this_test() {
    let cpus = cpus();
    assert!(cpus.workers() <= cpus.affinity.get(), "V2: {cpus}");
    let own = affinity::allowed().unwrap();
    assert_eq!(cpus.affinity.get(), own.len());
}

#[test]
fn reasons_are_said_in_words() {
    let affinity = NonZeroUsize::new(8).unwrap();
    let free = AvailableCpus { affinity, quota: None };
    assert_eq!(free.to_string(), "affinity mask of 8, no quota");
    let quota = Some(Quota { cpus: MilliCpus(1050), file: "/cg/cpu.max".into() });
    let limited = AvailableCpus { affinity, quota };
    assert_eq!(limited.to_string(), "affinity mask of 8, quota of 1.050 CPUs by /cg/cpu.max");
}

#[test]
fn workers_variable_holds_a_number_or_nothing() {
    assert_eq!(parse_workers(" 3\n").unwrap(), Some(3));
    assert_eq!(parse_workers("8192").unwrap(), Some(WORKERS_MAX));
    assert_eq!(parse_workers(" ").unwrap(), None);
    for value in ["0", "-1", "two", "1.5", "8193", "99999999999999999999", "3 4"] {
        let error = parse_workers(value).unwrap_err().to_string();
        let expected = format!("EVENKEEL_WORKERS={value:?}: expected a number from 1 to 8192");
        assert_eq!(error, expected);
    }
}
