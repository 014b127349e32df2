//! `init`: a configuration and a JSON Schema to start from. Never overwrites.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
};

use crate::{
    args::Init,
    code::Code,
    config::FILE_NAME,
    fault::{Exit, Failure, Fault, Outcome},
};

/// The files, by path under the folder. The same ones are in examples/, where CI reads them.
const FILES: [(&str, &str); 2] = [
    (
        FILE_NAME,
        include_str!("../../../../examples/postrider.toml"),
    ),
    (
        "schemas/order-placed.json",
        include_str!("../../../../examples/schemas/order-placed.json"),
    ),
];

/// Where the example's file destination writes.
const FOLDERS: [&str; 1] = ["delivered"];

pub(super) fn run(args: &Init, out: &mut dyn Write) -> Outcome {
    let folder = &args.folder;
    let taken = FILES
        .iter()
        .map(|(path, _)| folder.join(path))
        .find(|path| path.exists());
    if let Some(path) = taken {
        return Err(exists(&path));
    }
    for name in FOLDERS {
        let path = folder.join(name);
        fs::create_dir_all(&path).map_err(|error| unusable(&path, &error))?;
    }
    for (path, text) in FILES {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| unusable(parent, &error))?;
        }
        write_new(&path, text)?;
        writeln!(out, "wrote {}", path.display())?;
    }
    writeln!(
        out,
        "next: postrider migrate, postrider apply --yes, postrider run"
    )?;
    Ok(Exit::Done)
}

fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).create_new(true).open(path);
    match opened.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(path)),
        Err(error) => Err(unusable(path, &error)),
    }
}

fn exists(path: &Path) -> Failure {
    Fault::new(
        Code::FileExists,
        format!("{} exists already", path.display()),
        "Nothing was written: init never overwrites.",
        "remove it, or name another folder",
    )
    .into()
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Fault::new(
        Code::FileUnusable,
        format!("{}: {error}", path.display()),
        "",
        "check that the folder exists and that this user may write there",
    )
    .into()
}
