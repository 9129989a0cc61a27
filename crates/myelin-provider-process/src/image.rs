//! What a template asks of a directory: its image and its mounts.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
};

use myelin_executor::ProviderError;
use myelin_shape::{BootSpec, DesiredNodeShape, Mount};
use myelin_state::ErrorClass;

use crate::{blocking::Wanted, store::failed};

/// Names in a lease that are ours.
const RESERVED: [&str; 5] = ["agent", "join.json", "lease.json", "rootfs", "session.json"];

/// What goes into a new lease besides our own records. Checked before anything is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// Directory that is copied to `rootfs`.
    image: Option<PathBuf>,
    /// Links, by their path in the lease, to what they lead to.
    links: Vec<(PathBuf, PathBuf)>,
}

fn permanent(message: String) -> ProviderError {
    ProviderError::new(ErrorClass::Permanent, message)
}

impl Content {
    /// Checks what the template asks for.
    pub(crate) fn check(
        root: &Path,
        shape: &DesiredNodeShape,
        boot: &BootSpec,
    ) -> Result<Self, ProviderError> {
        let links = boot.mounts.iter().map(link).collect::<Result<_, _>>()?;
        let image = image(root, &shape.image)?;
        Ok(Self { image, links })
    }

    /// Fills a lease that nobody sees yet.
    pub(crate) fn fill(&self, lease: &Path, wanted: &Wanted) -> Result<(), ProviderError> {
        if let Some(image) = &self.image {
            copy(image, &lease.join("rootfs"), wanted)?;
        }
        for (path, source) in &self.links {
            let path = lease.join(path);
            let parent = path.parent().unwrap_or(lease);
            fs::create_dir_all(parent)
                .and_then(|()| symlink(source, &path))
                .map_err(|error| failed("cannot link", &path, &error))?;
        }
        Ok(())
    }
}

/// An empty image or a plain name is only a label; an absolute path is a directory to copy.
fn image(root: &Path, image: &str) -> Result<Option<PathBuf>, ProviderError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:/-".contains(c);
    let path = Path::new(image);
    if path.is_absolute() {
        return directory(root, path).map(Some);
    }
    if image.starts_with('.') || !image.chars().all(plain) {
        let message = format!("image {image:?} is neither a name nor an absolute path");
        return Err(permanent(message));
    }
    Ok(None)
}

fn directory(root: &Path, image: &Path) -> Result<PathBuf, ProviderError> {
    let shown = image.display();
    match image.canonicalize() {
        Ok(path) if !path.is_dir() => Err(permanent(format!("image {shown} is no directory"))),
        Ok(path) if root.starts_with(&path) => {
            Err(permanent(format!("image {shown} holds the leases")))
        }
        Ok(path) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(permanent(format!("image {shown} does not exist")))
        }
        Err(error) => Err(failed("cannot read image", image, &error)),
    }
}

/// A mount is a link in the lease. It cannot be read-only, and its target is taken as below the lease.
fn link(mount: &Mount) -> Result<(PathBuf, PathBuf), ProviderError> {
    let Mount { source, target, read_only } = mount;
    let shown = target.display();
    if *read_only {
        let message = format!("mount {shown} cannot be read-only: processes share our files");
        return Err(permanent(message));
    }
    if !source.is_absolute() || !source.exists() {
        let message = format!("mount source {} does not exist", source.display());
        return Err(permanent(message));
    }
    let mut path = PathBuf::new();
    for component in target.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => path.push(name),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(permanent(format!("mount target {shown} leaves the lease")));
            }
        }
    }
    match path.iter().next() {
        None => Err(permanent(format!("mount target {shown} is the lease itself"))),
        Some(first) if is_reserved(Path::new(first)) => {
            Err(permanent(format!("mount target {shown} is reserved")))
        }
        Some(_) => Ok((path, source.clone())),
    }
}

fn is_reserved(first: &Path) -> bool {
    let is_log = first.extension().is_some_and(|extension| extension == "log");
    is_log || RESERVED.iter().any(|reserved| first == Path::new(reserved))
}

/// Copies a directory: files with their permissions, links as links. Anything else is refused.
fn copy(from: &Path, to: &Path, wanted: &Wanted) -> Result<(), ProviderError> {
    let at = |error: io::Error| failed("cannot copy", from, &error);
    fs::create_dir(to).map_err(at)?;
    for entry in fs::read_dir(from).map_err(at)? {
        if !wanted.still() {
            let message = "given up while the image was copied";
            return Err(ProviderError::new(ErrorClass::Transient, message));
        }
        let entry = entry.map_err(at)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let at = |error: io::Error| failed("cannot copy", &source, &error);
        let kind = entry.file_type().map_err(at)?;
        if kind.is_dir() {
            copy(&source, &target, wanted)?;
        } else if kind.is_symlink() {
            let leads_to = fs::read_link(&source).map_err(at)?;
            symlink(leads_to, &target).map_err(at)?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(at)?;
        } else {
            let shown = source.display();
            return Err(permanent(format!("image holds {shown}, which is no file")));
        }
    }
    let permissions = fs::metadata(from).map_err(at)?.permissions();
    fs::set_permissions(to, permissions).map_err(at)
}
