//! A webhook receiver on a thread: 204, or 400 while the file `refuse` exists, or 410 while the
//! file `gone` does.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
};

pub(crate) struct Receiver {
    address: SocketAddr,
}

impl Receiver {
    /// Listens until the process ends.
    pub(crate) fn start(folder: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let folder = folder.clone();
                // A client that went away in the middle is no fault of ours.
                std::thread::spawn(move || stream.and_then(|stream| serve(stream, &folder)));
            }
        });
        Self { address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn serve(stream: TcpStream, folder: &std::path::Path) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut length = 0;
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        reader.by_ref().take(length).read_to_end(&mut Vec::new())?;
        let status = if folder.join("refuse").exists() {
            "400 Bad Request"
        } else if folder.join("gone").exists() {
            "410 Gone"
        } else {
            "204 No Content"
        };
        write!(writer, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")?;
    }
}
