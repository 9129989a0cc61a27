//! Leases: made whole, found by what they say, destroyed with all that runs on them.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    slice,
    sync::Arc,
    time::Duration,
};

use myelin_executor::{CreateRequest, Presence, Provider, ProviderError};
use myelin_shape::{BootSpec, DesiredNodeShape, Mount};
use myelin_state::{BootstrapStage::WaitingForSwactorJoin, ErrorClass};
use rustix::process::Signal;

use crate::world::{
    World, new_cluster, provider, request, running_on, signal, soon, starting, template,
    until_running,
};

fn with_image(world: &World, image: &str) -> CreateRequest {
    let mut template = template(BootSpec::default());
    template.shape = DesiredNodeShape { image: image.into(), ..DesiredNodeShape::default() };
    request(world.cluster, 1, template)
}

fn with_mount(world: &World, source: &Path, target: &str) -> CreateRequest {
    let mount = Mount { source: source.into(), target: target.into(), read_only: false };
    let boot = BootSpec { mounts: vec![mount], ..BootSpec::default() };
    world.request(1, boot)
}

/// Creates, expects a permanent refusal that leaves nothing behind, and returns its words.
async fn refused(world: &World, request: &CreateRequest) -> String {
    let error = world.provider.create(request).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent, "{error}");
    assert_eq!(fs::read_dir(world.root()).unwrap().count(), 0);
    error.message
}

#[tokio::test]
async fn an_image_is_a_label_or_a_directory_that_exists() {
    let world = World::new().await;
    let cases = [
        ("/nonexistent/x", "image /nonexistent/x does not exist"),
        ("/dev/null", "image /dev/null is no directory"),
        ("../x", "image \"../x\" is neither a name nor an absolute path"),
        ("a b", "image \"a b\" is neither a name nor an absolute path"),
        ("/", "image / holds the leases"),
    ];
    for (image, words) in cases {
        assert_eq!(refused(&world, &with_image(&world, image)).await, words);
    }
    for image in ["", "debian:13", "registry.example/team/app:1.2"] {
        let made = world.provider.create(&with_image(&world, image)).await.unwrap();
        world.provider.destroy(&made.lease).await.unwrap();
    }
}

#[tokio::test]
async fn an_image_directory_is_copied_and_survives_its_lease() {
    let world = World::new().await;
    let image = world.directory.path().join("image");
    fs::create_dir_all(image.join("bin")).unwrap();
    fs::write(image.join("bin/run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(image.join("bin/run"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("bin/run", image.join("link")).unwrap();
    let made = world.provider.create(&with_image(&world, image.to_str().unwrap())).await.unwrap();
    let lease = world.root().join(made.lease.destroy_handle.as_str());
    let mode = |path: &str| fs::metadata(lease.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("rootfs/bin/run"), 0o750);
    assert_eq!(fs::read_link(lease.join("rootfs/link")).unwrap(), Path::new("bin/run"));
    assert_eq!((mode("."), mode("lease.json")), (0o700, 0o600));
    world.provider.destroy(&made.lease).await.unwrap();
    assert!(image.join("bin/run").exists());
}

#[tokio::test]
async fn a_mount_is_a_link_that_stays_in_the_lease() {
    let world = World::new().await;
    let source = world.directory.path().join("data");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("kept"), "kept").unwrap();
    let cases = [
        ("../x", "mount target ../x leaves the lease"),
        ("/a/../../x", "mount target /a/../../x leaves the lease"),
        ("/", "mount target / is the lease itself"),
        ("lease.json", "mount target lease.json is reserved"),
        ("agent/x", "mount target agent/x is reserved"),
        ("stdout.1.log", "mount target stdout.1.log is reserved"),
    ];
    for (target, words) in cases {
        assert_eq!(refused(&world, &with_mount(&world, &source, target)).await, words);
    }
    let missing = with_mount(&world, Path::new("/nonexistent/x"), "x");
    assert_eq!(refused(&world, &missing).await, "mount source /nonexistent/x does not exist");
    let made = world.provider.create(&with_mount(&world, &source, "/var/data")).await.unwrap();
    let lease = world.root().join(made.lease.destroy_handle.as_str());
    assert_eq!(fs::read_to_string(lease.join("var/data/kept")).unwrap(), "kept");
    world.provider.destroy(&made.lease).await.unwrap();
    assert!(source.join("kept").exists(), "what a mount leads to is not the lease's");
}

#[tokio::test]
async fn a_template_too_large_to_be_recorded_is_refused_for_good() {
    let world = World::new().await;
    let mut template = template(BootSpec::default());
    template.shape.provider_labels.insert("note".into(), "x".repeat(5 << 20));
    let words = refused(&world, &request(world.cluster, 1, template)).await;
    assert!(words.ends_with("file too large"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_of_one_attempt_make_one_lease() {
    let world = World::new().await;
    let other =
        provider(world.directory.path(), world.handle.address(), Arc::clone(&world.reports));
    let providers = [Arc::clone(&world.provider), Arc::new(other)];
    let request = world.request(1, BootSpec::default());
    let creates = (0..32).map(|n| {
        let (provider, request) = (Arc::clone(&providers[n % 2]), request.clone());
        tokio::spawn(async move { provider.create(&request).await.unwrap() })
    });
    let creates: Vec<_> = creates.collect();
    let mut made = Vec::new();
    for create in creates {
        made.push(soon("a create", create).await.unwrap());
    }
    assert!(made.iter().all(|lease| *lease == made[0]));
    assert_eq!(fs::read_dir(world.root()).unwrap().count(), 1);
}

#[tokio::test]
async fn clusters_that_share_a_root_are_strangers() {
    let world = World::new().await;
    let stranger = request(new_cluster(), 1, template(BootSpec::default()));
    let ours = world.provider.create(&world.request(1, BootSpec::default())).await.unwrap();
    let theirs = world.provider.create(&stranger).await.unwrap();
    let list = async |cluster| {
        let found = world.provider.list(cluster).await.unwrap();
        found.into_iter().map(|found| found.lease).collect::<Vec<_>>()
    };
    assert_eq!(list(world.cluster).await, slice::from_ref(&ours.lease));
    assert_eq!(list(stranger.key.cluster).await, slice::from_ref(&theirs.lease));
    world.provider.destroy(&ours.lease).await.unwrap();
    assert_eq!(list(stranger.key.cluster).await, [theirs.lease]);
}

#[tokio::test]
async fn a_lease_of_another_template_is_not_adopted() {
    let world = World::new().await;
    let made = world.request(1, BootSpec::default());
    world.provider.create(&made).await.unwrap();
    let error = world.provider.create(&world.request(1, starting("x"))).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
    assert!(error.message.contains("was made from another template"), "{error}");
}

#[tokio::test]
async fn what_is_no_lease_is_skipped_counted_and_never_destroyed() {
    let world = World::new().await;
    let made = world.provider.create(&world.request(1, BootSpec::default())).await.unwrap();
    let root = world.root();
    let name = made.lease.destroy_handle.as_str();
    let imposter = name.replace(".1", ".2");
    for directory in ["somebody-elses", &imposter] {
        fs::create_dir(root.join(directory)).unwrap();
    }
    fs::copy(root.join(name).join("lease.json"), root.join(&imposter).join("lease.json")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    let listed = world.provider.list(world.cluster).await.unwrap();
    assert_eq!((listed.len(), world.provider.n_foreign()), (1, 3));
    for foreign in ["somebody-elses", &imposter, "file"] {
        let mut facts = made.lease.clone();
        facts.destroy_handle = foreign.into();
        let error = world.provider.destroy(&facts).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Permanent, "{error}");
        assert!(root.join(foreign).exists());
    }
}

#[tokio::test]
async fn a_handle_that_leads_out_of_the_root_is_refused() {
    let world = World::new().await;
    let made = world.provider.create(&world.request(1, BootSpec::default())).await.unwrap();
    for handle in ["", ".", "..", "../leases", "/etc", "a/b", ".gone-1"] {
        let mut facts = made.lease.clone();
        facts.destroy_handle = handle.into();
        let refused = |error: ProviderError| assert_eq!(error.class, ErrorClass::Permanent);
        refused(world.provider.destroy(&facts).await.unwrap_err());
        refused(world.provider.presence(&facts).await.unwrap_err());
    }
}

#[tokio::test]
async fn destroying_ends_children_whose_leader_is_dead_and_those_without_environment() {
    let world = World::new().await;
    let script =
        "env -i sleep 601 & setsid sleep 602 & (trap '' TERM; exec sleep 603) & sleep 604 & wait";
    let (start, _) = world.start(starting(script)).await;
    // The one without an environment is not counted here, but it is ended all the same.
    let running = until_running(&start.lease, 4).await;
    let leader = *running.iter().min().unwrap();
    let children = fs::read_to_string(format!("/proc/{leader}/task/{leader}/children")).unwrap();
    let children: Vec<i32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(children.len(), 4, "{children:?} of {leader} among {running:?}");
    world.provider.destroy(&start.lease).await.unwrap();
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
    for pid in children {
        assert!(!Path::new(&format!("/proc/{pid}")).exists() || is_zombie(pid), "{pid} runs");
    }
}

fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"))
}

#[tokio::test]
async fn destroying_finds_what_a_dead_leader_left_also_after_a_restart() {
    let mut world = World::new().await;
    let (start, _) = world.start(starting("sleep 605 & setsid sleep 606 & wait")).await;
    let running = until_running(&start.lease, 3).await;
    signal(*running.iter().min().unwrap(), Signal::KILL);
    until_running(&start.lease, 2).await;
    world.restart();
    world.provider.destroy(&start.lease).await.unwrap();
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
    assert_eq!(world.provider.presence(&start.lease).await.unwrap(), Presence::Absent);
    world.provider.destroy(&start.lease).await.unwrap();
}

#[tokio::test]
async fn destroying_ends_a_daemon_that_cleaned_its_environment_and_left_its_parents() {
    let world = World::new().await;
    let script = "(env -i setsid sleep 624.5 &); echo started; exec sleep 625";
    let (start, _) = world.start(starting(script)).await;
    world.reports.line("started").await;
    let daemon = async {
        loop {
            let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
            let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
            let sleeps = |pid: &i32| {
                let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                cmdline == b"sleep\x00624.5\x00"
            };
            if let Some(pid) = pids.find(sleeps) {
                return pid;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let daemon = soon("the daemon", daemon).await;
    world.provider.destroy(&start.lease).await.unwrap();
    assert!(!Path::new(&format!("/proc/{daemon}")).exists() || is_zombie(daemon), "it runs");
}

#[tokio::test]
async fn destroying_a_lease_whose_directory_was_removed_by_hand_ends_its_processes() {
    let world = World::new().await;
    let (start, _) = world.start(starting("exec sleep 607")).await;
    world.reports.stage(WaitingForSwactorJoin).await;
    assert_eq!(running_on(&start.lease).len(), 1);
    fs::remove_dir_all(world.root().join(start.lease.destroy_handle.as_str())).unwrap();
    world.provider.destroy(&start.lease).await.unwrap();
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
}

#[tokio::test]
async fn destroying_a_lease_whose_record_is_damaged_ends_its_processes_and_keeps_its_files() {
    let world = World::new().await;
    let (start, _) = world.start(starting("exec sleep 609")).await;
    until_running(&start.lease, 1).await;
    let record = world.root().join(start.lease.destroy_handle.as_str()).join("lease.json");
    fs::write(&record, "{").unwrap();
    let error = world.provider.destroy(&start.lease).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent, "{error}");
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
    assert!(record.exists());
}

#[tokio::test]
async fn what_cannot_be_read_is_not_called_absent() {
    let world = World::new().await;
    let request = world.request(1, BootSpec::default());
    let made = world.provider.create(&request).await.unwrap();
    let record = world.root().join(made.lease.destroy_handle.as_str()).join("lease.json");
    fs::remove_file(&record).unwrap();
    symlink("lease.json", &record).unwrap();
    let unread = |error: ProviderError| {
        assert_eq!(error.class, ErrorClass::Transient, "{error}");
        assert!(error.message.contains("cannot read"), "{error}");
    };
    unread(world.provider.presence(&made.lease).await.unwrap_err());
    unread(Provider::find(&*world.provider, &request.key).await.unwrap_err());
    unread(world.provider.list(world.cluster).await.unwrap_err());
    unread(world.provider.create(&request).await.unwrap_err());
}

#[tokio::test]
async fn stopped_processes_are_ended_too() {
    let world = World::new().await;
    let (start, _) = world.start(starting("exec sleep 608")).await;
    for pid in until_running(&start.lease, 1).await {
        signal(pid, Signal::STOP);
    }
    world.provider.destroy(&start.lease).await.unwrap();
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
}

#[tokio::test]
async fn what_a_crash_left_half_made_is_swept_at_the_next_start() {
    let mut world = World::new().await;
    let root = world.root();
    let stale = root.join(".new-999999999-1-0-x");
    let tombstone = root.join(".gone-x");
    let unknown = root.join(".keep");
    for directory in [&stale, &tombstone, &unknown] {
        fs::create_dir(directory).unwrap();
    }
    world.restart();
    assert!(!stale.exists() && !tombstone.exists());
    assert!(unknown.exists(), "what is not known to be ours stays");
}

#[tokio::test]
async fn the_identity_is_the_same_for_a_root_however_it_is_written() {
    let world = World::new().await;
    let link = world.directory.path().join("link");
    symlink(world.directory.path(), &link).unwrap();
    let other = provider(&link, world.handle.address(), Arc::clone(&world.reports));
    let elsewhere = tempfile::tempdir().unwrap();
    let third = provider(elsewhere.path(), world.handle.address(), Arc::clone(&world.reports));
    let identity = world.provider.identity().await.unwrap();
    assert_eq!(other.identity().await.unwrap(), identity);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(!identity.0.contains(boot.trim()), "leases outlive a boot, and it is the same host");
    assert_ne!(third.identity().await.unwrap(), identity);
    assert_eq!(world.provider.settle_window(), Duration::ZERO);
}
