//! A watched file, on the real file system and in virtual time.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::discover::{Discover, Endpoint};
use plimsoll_discover::file::File;
use tokio::time::Instant;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plimsoll-file-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("web.json")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, ports: &[u16]) {
    let entry = |port: &u16| format!("{{\"address\": \"127.0.0.1:{port}\"}}");
    let entries: Vec<String> = ports.iter().map(entry).collect();
    fs::write(path, format!("{{\"backends\": [{}]}}", entries.join(", "))).unwrap();
}

fn endpoints(ports: &[u16]) -> Vec<Endpoint> {
    ports.iter().map(|port| Endpoint::new(([127, 0, 0, 1], *port))).collect()
}

/// The next list, and the virtual time until it came.
async fn list(source: &mut File) -> (Vec<Endpoint>, Duration) {
    let began = Instant::now();
    (source.next().await.unwrap().unwrap(), began.elapsed())
}

async fn error(source: &mut File) -> String {
    source.next().await.unwrap().unwrap_err().to_string()
}

#[tokio::test(start_paused = true)]
async fn change_is_seen_within_two_seconds() {
    let folder = Folder::new("change");
    write(&folder.file(), &[1, 2]);
    let mut source = File::new(folder.file());
    assert_eq!(list(&mut source).await, (endpoints(&[1, 2]), Duration::from_millis(200)));
    write(&folder.file(), &[1, 2, 3]);
    let (found, after) = list(&mut source).await;
    assert_eq!(found, endpoints(&[1, 2, 3]));
    assert!(after <= Duration::from_secs(2), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn unchanged_file_gives_no_answer() {
    let folder = Folder::new("unchanged");
    write(&folder.file(), &[1]);
    let mut source = File::new(folder.file());
    list(&mut source).await;
    // The same list in other words.
    fs::write(folder.file(), r#"[{"targets": ["127.0.0.1:1"]}]"#).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(3600), source.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn swapped_folder_behind_a_symbolic_link_is_seen() {
    let folder = Folder::new("swap");
    // As Kubernetes does: web.json → ..data/web.json, ..data → a folder by its time.
    for (name, ports) in [("..1", [1, 2]), ("..2", [3, 4])] {
        fs::create_dir(folder.0.join(name)).unwrap();
        write(&folder.0.join(name).join("web.json"), &ports);
    }
    let data = folder.0.join("..data");
    std::os::unix::fs::symlink("..1", &data).unwrap();
    std::os::unix::fs::symlink("..data/web.json", folder.file()).unwrap();
    let mut source = File::new(folder.file());
    assert_eq!(list(&mut source).await.0, endpoints(&[1, 2]));
    std::os::unix::fs::symlink("..2", folder.0.join("..data_tmp")).unwrap();
    fs::rename(folder.0.join("..data_tmp"), &data).unwrap();
    let (found, after) = list(&mut source).await;
    assert_eq!(found, endpoints(&[3, 4]));
    assert!(after <= Duration::from_secs(2), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn missing_and_half_written_files_are_errors_that_name_them() {
    let folder = Folder::new("broken");
    let mut source = File::new(folder.file());
    assert!(error(&mut source).await.contains("web.json: cannot be read: No such file"));
    write(&folder.file(), &[1]);
    assert_eq!(list(&mut source).await.0, endpoints(&[1]));
    fs::write(folder.file(), "{\"backends\": [{\"address\": \"127.0.0.1:1\"},").unwrap();
    assert!(error(&mut source).await.contains("web.json: EOF while parsing"));
    // The same list after an error is an answer.
    write(&folder.file(), &[1]);
    assert_eq!(list(&mut source).await.0, endpoints(&[1]));
    fs::remove_file(folder.file()).unwrap();
    for path in ["/dev/zero", "."] {
        std::os::unix::fs::symlink(path, folder.file()).unwrap();
        assert!(error(&mut source).await.contains("web.json: is not a regular file"));
        fs::remove_file(folder.file()).unwrap();
        assert!(error(&mut source).await.contains("No such file"));
    }
    fs::write(folder.file(), vec![b' '; 16 * 1024 * 1024 + 1]).unwrap();
    assert!(error(&mut source).await.contains("larger than 16 MiB"));
}

/// Every read finds other bytes: that is an error, and no part of a list.
#[tokio::test(start_paused = true)]
async fn file_that_never_settles_is_an_error() {
    let folder = Folder::new("busy");
    let path = folder.file();
    write(&path, &[1]);
    let mut source = File::new(&path);
    let writer = tokio::spawn(async move {
        for port in (1..u16::MAX).cycle() {
            write(&path, &[port]);
            tokio::time::sleep(Duration::from_millis(90)).await;
        }
    });
    assert!(error(&mut source).await.contains("still being written"));
    writer.abort();
}

/// A writer that appends a line every 100 ms for a second: no part of its list is an answer.
#[tokio::test(start_paused = true)]
async fn file_that_is_being_written_is_read_when_it_is_whole() {
    let folder = Folder::new("slow");
    let path = folder.0.join("web.toml");
    let line = |port: usize| format!("[[backends]]\naddress = \"127.0.0.1:{port}\"\n");
    fs::write(&path, line(1)).unwrap();
    let mut source = File::new(&path);
    list(&mut source).await;
    let writer = tokio::spawn(async move {
        // Between two reads, which come at multiples of 100 ms: a write beside a read is a race of two threads.
        tokio::time::sleep(Duration::from_millis(550)).await;
        for ports in 1..=10 {
            fs::write(&path, (1..=ports).map(line).collect::<String>()).unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert_eq!(list(&mut source).await.0.len(), 10);
    writer.await.unwrap();
}
