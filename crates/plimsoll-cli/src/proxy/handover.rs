//! How listening sockets pass from a process to its successor.
//!
//! The successor's standard input is one end of a pair of Unix sockets: its predecessor sends the listening sockets through it
//! (`SCM_RIGHTS`), and is told through it when the successor serves; the end of the stream says that it has died before. Descriptors
//! that are merely inherited would have to be known by number, kept clear of others', and taken on trust; these arrive as what they are.
//!
//! ```text
//! predecessor  ──files, sockets, "that is all"──▶      successor
//!              ◀──"UDP as well"──                       it knows of them by a variable of its environment
//!              ──sockets of UDP, "that is all"──▶
//!                                                       waits for healthy backends
//!              ◀──"take over"──
//!  pauses      ──"paused"──▶
//!              ◀──"serving"──                           answers probes, and listens
//!  ends
//! ```
//!
//! The files are the paths of Unix sockets, which the successor removes at its end. Other files are the service
//! manager's. They come in messages of sockets without a socket: an environment has room for some thousand paths only,
//! and a proxy may have more. A successor of an older version reads the first byte of a message, and leaves the files.
//!
//! Sockets of UDP are only sent on request. A successor of an older version does not ask, and would refuse
//! them; a predecessor of an older version lacks the variable, so it is not asked.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use plimsoll_proxy::{ProbeHandover, Sockets};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Tells a process that its standard input is such a channel: holds the process id of its parent.
const VARIABLE: &str = "PLIMSOLL_SUCCESSOR_OF";
/// The clusters in which a backend is healthy for the predecessor, one a line, after its process id: one of another version passes on what it
/// got itself. In the environment and not on the channel, of which another version would not understand it.
const HEALTHY: &str = "PLIMSOLL_HEALTHY_CLUSTERS";
/// Tells the successor that it may ask for sockets of UDP: holds the process id of its parent.
const HAS_UDP: &str = "PLIMSOLL_HANDS_OVER_UDP";
/// Bytes of that list, beyond which names are left out. The kernel takes 128 KiB for a variable, and half of it says enough.
const MOST_NAMES: usize = 64 * 1024;
/// Sockets in one message; the kernel takes 253.
const SOCKETS_AT_ONCE: usize = 64;
/// Paths in one message, each with a zero byte behind it.
const FILES_AT_ONCE: usize = 64;
/// Bytes of a path; the kernel takes 107.
const MAX_PATH: usize = 107;
/// How long the successor waits for sockets that its predecessor has already begun to send.
const SEND_PATIENCE: Duration = Duration::from_secs(10);

/// How long the successor waits for the pause of its predecessor. Clients wait for a second.
const PAUSE_PATIENCE: Duration = Duration::from_secs(1);
/// How long the predecessor stays paused for a successor that does not say that it serves.
const TAKEOVER_PATIENCE: Duration = Duration::from_secs(2);

/// What a message is about: its one byte.
const SOCKETS: u8 = b's';
const THAT_IS_ALL: u8 = b'e';
/// The successor asks for sockets of UDP; and these.
const UDP: u8 = b'u';
/// The successor is about to answer probes; and the predecessor does so no longer.
const PAUSE: u8 = b'p';
const SERVING: u8 = b'r';
/// The successor does not come to serve; the rest of the message is the reason.
const FAILED: u8 = b'x';
/// Bytes of a reason, beyond which it is cut: enough for some hundred problems of a config.
const MAX_REASON: usize = 32 * 1024;

fn is_parent(process: &str) -> bool {
    process == std::os::unix::process::parent_id().to_string()
}

/// The lines of a variable that the predecessor set, behind its process id.
fn said_by_parent(variable: &str) -> Vec<String> {
    let said = std::env::var(variable).unwrap_or_default();
    let by_parent = said.split_once('\n').filter(|(process, _)| is_parent(process));
    by_parent.map_or_else(Vec::new, |(_, lines)| lines.lines().map(str::to_owned).collect())
}

/// Whether the predecessor hands over sockets of UDP.
fn has_udp() -> bool {
    std::env::var(HAS_UDP).is_ok_and(|process| is_parent(&process))
}

/// The answers to probes of a predecessor.
pub(super) trait Probes {
    /// Copies of their sockets.
    fn sockets(&self) -> io::Result<Vec<UdpSocket>>;
    /// Reads and sends nothing from now on. Dropped, it goes on.
    fn pause(&self);
}

impl Probes for ProbeHandover {
    fn sockets(&self) -> io::Result<Vec<UdpSocket>> {
        self.sockets()
    }

    fn pause(&self) {
        self.pause();
    }
}

/// One end of the channel.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    /// The predecessor's end, and what is to be the successor's standard input.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// The environment of the successor. `healthy` are the clusters with a healthy backend.
    pub(super) fn variables(healthy: &[String]) -> [(&'static str, String); 3] {
        let process = std::process::id().to_string();
        let mut names = format!("{process}\n");
        for name in healthy {
            if names.len() + name.len() >= MOST_NAMES {
                break;
            }
            names.push_str(name);
            names.push('\n');
        }
        [(VARIABLE, process.clone()), (HEALTHY, names), (HAS_UDP, process)]
    }

    /// The clusters in which a backend was healthy for the predecessor when it began to hand over.
    pub(super) fn healthy_before() -> Vec<String> {
        said_by_parent(HEALTHY)
    }

    /// The successor's end, when this process is one.
    pub(super) fn to_predecessor() -> io::Result<Option<Self>> {
        if !std::env::var(VARIABLE).is_ok_and(|process| is_parent(&process)) {
            return Ok(None);
        }
        let channel = Self(io::stdin().as_fd().try_clone_to_owned()?);
        // A child of this process must not find it.
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Ok(Some(channel))
    }

    /// Sends the paths of Unix sockets with files that the successor removes at its end. The sockets come
    /// next.
    pub(super) fn send_files(&self, files: &[&str]) -> io::Result<()> {
        for some in files.chunks(FILES_AT_ONCE) {
            let paths: Vec<u8> = some.iter().flat_map(|path| path.bytes().chain([0])).collect();
            let message = [IoSlice::new(&[SOCKETS]), IoSlice::new(&paths)];
            sendmsg(&self.0, &message, &mut SendAncillaryBuffer::new(&mut []), SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    /// Sends all sockets; the successor holds them from then on, whatever becomes of these.
    pub(super) fn send(&self, sockets: &[impl AsFd]) -> io::Result<()> {
        self.send_as(SOCKETS, sockets)
    }

    fn send_as(&self, what: u8, sockets: &[impl AsFd]) -> io::Result<()> {
        for some in sockets.chunks(SOCKETS_AT_ONCE) {
            let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_AT_ONCE))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&some));
            sendmsg(&self.0, &[IoSlice::new(&[what])], &mut control, SendFlags::NOSIGNAL)?;
        }
        self.say(THAT_IS_ALL)
    }

    /// Receives what the predecessor sends.
    pub(super) fn receive(&self) -> io::Result<Sockets> {
        set_socket_timeout(&self.0, Timeout::Recv, Some(SEND_PATIENCE))?;
        let mut sockets = Sockets::default();
        for file in self.receive_as(SOCKETS, |descriptor| sockets.add(descriptor))? {
            sockets.add_file(&file);
        }
        if has_udp() {
            self.say(UDP)?;
            self.receive_as(UDP, |descriptor| sockets.add_udp(UdpSocket::from(descriptor)))?;
        }
        Ok(sockets)
    }

    /// Receives sockets of a kind. Returns the paths among them.
    fn receive_as(&self, what: u8, mut each: impl FnMut(OwnedFd) -> io::Result<()>) -> io::Result<Vec<String>> {
        let mut files = Vec::new();
        let mut message = [0; 1 + FILES_AT_ONCE * (MAX_PATH + 1)];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_AT_ONCE))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let length = self.hear_into(&mut message, &mut control)?;
            match message[0] {
                heard if heard == what => {}
                THAT_IS_ALL => return Ok(files),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            let paths = message[1..length].split(|byte| *byte == 0).filter(|path| !path.is_empty());
            files.extend(paths.map(|path| String::from_utf8_lossy(path).into_owned()));
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    for descriptor in descriptors {
                        each(descriptor)?;
                    }
                }
            }
        }
    }

    /// Has the predecessor answer no more probes. Its successor begins when this returns, and has to say soon that
    /// it serves.
    pub(super) fn take_probes(&self) -> io::Result<()> {
        if !has_udp() {
            return Ok(());
        }
        self.say(PAUSE)?;
        set_socket_timeout(&self.0, Timeout::Recv, Some(PAUSE_PATIENCE))?;
        match self.hear(&mut RecvAncillaryBuffer::new(&mut []))? {
            PAUSE => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Tells the predecessor that its successor serves.
    pub(super) fn say_serving(&self) -> io::Result<()> {
        self.say(SERVING)
    }

    /// Tells the predecessor why its successor does not serve. It learns of the end in any case.
    pub(super) fn say_failed(&self, reason: &str) {
        let end = reason.floor_char_boundary(MAX_REASON);
        let message = [IoSlice::new(&[FAILED]), IoSlice::new(&reason.as_bytes()[..end])];
        let _ = sendmsg(&self.0, &message, &mut SendAncillaryBuffer::new(&mut []), SendFlags::NOSIGNAL);
    }

    /// Waits until the successor serves, or says why it does not. Gives it the answers to probes when it asks. An error of
    /// the kind `UnexpectedEof` says that it ended without a word.
    pub(super) fn wait_until_serving(
        &self,
        patience: Duration,
        probes: &impl Probes,
    ) -> io::Result<Result<(), String>> {
        let mut until = Instant::now() + patience;
        let mut message = vec![0; 1 + MAX_REASON];
        loop {
            // Zero would be no limit.
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            set_socket_timeout(&self.0, Timeout::Recv, Some(left))?;
            let mut hear = || self.hear_into(&mut message, &mut RecvAncillaryBuffer::new(&mut []));
            // A successor that ended before it took the sockets leaves an error, and behind it the reason.
            let length = match hear() {
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => hear()?,
                heard => heard?,
            };
            match message[0] {
                SERVING => return Ok(Ok(())),
                FAILED => return Ok(Err(String::from_utf8_lossy(&message[1..length]).into_owned())),
                UDP => self.send_as(UDP, &probes.sockets()?)?,
                PAUSE => {
                    probes.pause();
                    self.say(PAUSE)?;
                    until = Instant::now() + TAKEOVER_PATIENCE;
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    fn say(&self, what: u8) -> io::Result<()> {
        sendmsg(&self.0, &[IoSlice::new(&[what])], &mut SendAncillaryBuffer::new(&mut []), SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn hear(&self, control: &mut RecvAncillaryBuffer<'_>) -> io::Result<u8> {
        let mut what = [0];
        self.hear_into(&mut what, control)?;
        Ok(what[0])
    }

    /// Receives one message, which is not empty; gives its length.
    fn hear_into(&self, message: &mut [u8], control: &mut RecvAncillaryBuffer<'_>) -> io::Result<usize> {
        let received = rustix::io::retry_on_intr(|| {
            recvmsg(&self.0, &mut [IoSliceMut::new(message)], control, RecvFlags::CMSG_CLOEXEC)
        })?;
        if received.bytes == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(received.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;

    use super::*;

    #[derive(Default)]
    struct Answers {
        sockets: Vec<UdpSocket>,
        is_paused: Cell<bool>,
    }

    impl Probes for Answers {
        fn sockets(&self) -> io::Result<Vec<UdpSocket>> {
            self.sockets.iter().map(UdpSocket::try_clone).collect()
        }

        fn pause(&self) {
            self.is_paused.set(true);
        }
    }

    #[test]
    fn udp_sockets_are_sent_on_request_and_paused_before_the_successor_begins() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel(theirs);
        let sockets: Vec<UdpSocket> =
            (0..SOCKETS_AT_ONCE + 3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let mut addresses: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let successor = std::thread::spawn(move || {
            let mut sockets = Sockets::default();
            theirs.receive_as(SOCKETS, |_| Ok(())).unwrap();
            theirs.say(UDP).unwrap();
            theirs.receive_as(UDP, |descriptor| sockets.add_udp(UdpSocket::from(descriptor))).unwrap();
            theirs.say(PAUSE).unwrap();
            assert_eq!(theirs.hear(&mut RecvAncillaryBuffer::new(&mut [])).unwrap(), PAUSE);
            theirs.say_serving().unwrap();
            sockets
        });
        ours.send(&[] as &[OwnedFd]).unwrap();
        let answers = Answers { sockets, ..Answers::default() };
        assert_eq!(ours.wait_until_serving(SEND_PATIENCE, &answers).unwrap(), Ok(()));
        assert!(answers.is_paused.get());
        let received = successor.join().unwrap();
        let mut got: Vec<_> = received.udp_addresses().collect();
        got.sort();
        addresses.sort();
        assert_eq!(got, addresses);
    }

    /// It takes listening sockets, says that it serves, and knows of no other message.
    #[test]
    fn successor_of_an_older_version_gets_no_udp_socket() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel(theirs);
        let answers = Answers { sockets: vec![UdpSocket::bind("127.0.0.1:0").unwrap()], ..Answers::default() };
        ours.send(&[TcpListener::bind("127.0.0.1:0").unwrap()]).unwrap();
        theirs.receive_as(SOCKETS, |_| Ok(())).unwrap();
        theirs.say_serving().unwrap();
        assert_eq!(ours.wait_until_serving(SEND_PATIENCE, &answers).unwrap(), Ok(()));
        assert!(!answers.is_paused.get());
        set_socket_timeout(&theirs.0, Timeout::Recv, Some(Duration::from_millis(1))).unwrap();
        let more = theirs.hear(&mut RecvAncillaryBuffer::new(&mut [])).unwrap_err();
        assert_eq!(more.kind(), io::ErrorKind::WouldBlock, "nothing else was sent");
    }

    /// It would end the upgrade at a message that it does not know.
    #[test]
    fn predecessor_of_an_older_version_is_not_asked_for_udp_sockets() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel(theirs);
        ours.send(&[] as &[OwnedFd]).unwrap();
        theirs.receive().unwrap();
        theirs.take_probes().unwrap();
        theirs.say_serving().unwrap();
        assert_eq!(ours.hear(&mut RecvAncillaryBuffer::new(&mut [])).unwrap(), SERVING);
    }

    #[test]
    fn successor_that_pauses_its_predecessor_and_is_silent_is_given_up_soon() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel(theirs);
        theirs.say(PAUSE).unwrap();
        let begun = Instant::now();
        let error = ours.wait_until_serving(Duration::from_secs(60), &Answers::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!((TAKEOVER_PATIENCE..TAKEOVER_PATIENCE * 5).contains(&begun.elapsed()));
    }

    #[test]
    fn files_arrive_and_are_removed_however_many_they_are() {
        const COUNT: usize = 2000;
        let folder = std::env::temp_dir().join(format!("plimsoll-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let width = (MAX_PATH - 1).saturating_sub(folder.to_str().unwrap().len());
        let paths: Vec<String> = (0..COUNT).map(|i| format!("{}/{i:0width$}", folder.display())).collect();
        for path in &paths {
            drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        }
        let bytes: usize = paths.iter().map(String::len).sum();
        assert!(bytes > 128 * 1024, "more than a variable of the environment takes: {bytes}");
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel(theirs);
        let successor = std::thread::spawn(move || theirs.receive().unwrap());
        let borrowed: Vec<&str> = paths.iter().map(String::as_str).collect();
        ours.send_files(&borrowed).unwrap();
        ours.send(&[TcpListener::bind("127.0.0.1:0").unwrap()]).unwrap();
        let mut received = successor.join().unwrap();
        assert_eq!(received.addresses().count(), 1);
        received.take_files().remove();
        std::fs::remove_dir(&folder).expect("no file is left");
    }

    #[test]
    fn sockets_arrive_with_their_queues_however_many_they_are() {
        let (ours, theirs) = Channel::pair().unwrap();
        let sockets: Vec<TcpListener> =
            (0..SOCKETS_AT_ONCE + 3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let address = sockets[5].local_addr().unwrap();
        let _waiting = std::net::TcpStream::connect(address).unwrap();
        ours.send(&sockets).unwrap();
        drop(sockets);
        let theirs = Channel(theirs);
        let mut received = theirs.receive().unwrap();
        assert_eq!(received.addresses().count(), SOCKETS_AT_ONCE + 3);
        assert!(received.take_tcp(address).remove(0).accept().is_ok());
        theirs.say_serving().unwrap();
        assert_eq!(ours.wait_until_serving(SEND_PATIENCE, &Answers::default()).unwrap(), Ok(()));
    }

    #[test]
    fn predecessor_learns_why_its_successor_does_not_serve() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel(theirs);
        for reason in ["plimsoll.toml:1:5: threads: no number".to_owned(), "ä".repeat(MAX_REASON)] {
            theirs.say_failed(&reason);
            let heard = ours.wait_until_serving(SEND_PATIENCE, &Answers::default()).unwrap().unwrap_err();
            assert!(reason.starts_with(&heard) && heard.len() >= reason.len().min(MAX_REASON - 1), "{}", heard.len());
        }
    }

    #[test]
    fn predecessor_learns_why_its_successor_ended_before_it_took_the_sockets() {
        let sockets = [TcpListener::bind("127.0.0.1:0").unwrap()];
        for is_sent_first in [true, false] {
            let (ours, theirs) = Channel::pair().unwrap();
            if is_sent_first {
                ours.send(&sockets).unwrap();
            }
            Channel(theirs).say_failed("no config");
            assert!(is_sent_first || ours.send(&sockets).is_err());
            assert_eq!(
                ours.wait_until_serving(SEND_PATIENCE, &Answers::default()).unwrap(),
                Err("no config".to_owned())
            );
        }
    }

    #[test]
    fn a_successor_that_ends_or_is_silent_is_noticed() {
        let (ours, theirs) = Channel::pair().unwrap();
        let error = ours.wait_until_serving(Duration::from_millis(1), &Answers::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(theirs);
        assert_eq!(
            ours.wait_until_serving(SEND_PATIENCE, &Answers::default()).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn an_ordinary_process_has_no_predecessor() {
        assert!(Channel::to_predecessor().unwrap().is_none());
    }
}
