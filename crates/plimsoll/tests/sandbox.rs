//! A process in a sandbox that forbids optional system calls. It is alone in its file, because the
//! sandbox cannot be lifted again.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::mem::offset_of;

use http::StatusCode;
use http_body_util::Empty;
use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, seccomp_data, sock_filter, sock_fprog};
use plimsoll::client::{Client, Protocol};
use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::TcpStream;

use support::*;

#[tokio::test]
async fn where_the_kernel_may_not_be_asked_to_notice_losses_connections_are_opened_all_the_same() {
    forbid_tcp_user_timeout();
    let server = Server::start(Speaks::Http2(10), |_| text("ok")).await;
    let tcp = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(sockopt::set_tcp_user_timeout(&tcp, 1_000), Err(Errno::PERM));

    let mut config = plain_config();
    config.requests.protocol = Protocol::Http2;
    let cluster = running(config, &[&server]).await;
    let client: Client<Empty<bytes::Bytes>> = Client::new(&cluster);
    assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
    assert_eq!(view_of(&cluster, server.address).counts.connections_failed, 0);
}

/// From now on this thread may not set that option of a socket: it is told EPERM.
fn forbid_tcp_user_timeout() {
    let load = |offset: usize| instruction(BPF_LD | BPF_W | BPF_ABS, u32::try_from(offset).unwrap(), 0);
    let unless = |value: u32, skip: u8| instruction(BPF_JMP | BPF_JEQ | BPF_K, value, skip);
    let argument = |number: usize| {
        // The lower half of it.
        let half = if cfg!(target_endian = "big") { 4 } else { 0 };
        load(offset_of!(seccomp_data, args) + 8 * number + half)
    };
    let answer = |what: u32| instruction(BPF_RET | BPF_K, what, 0);
    let mut filter = [
        load(offset_of!(seccomp_data, nr)),
        unless(u32::try_from(libc::SYS_setsockopt).unwrap(), 5),
        argument(1),
        unless(libc::IPPROTO_TCP.unsigned_abs(), 3),
        argument(2),
        unless(libc::TCP_USER_TIMEOUT.unsigned_abs(), 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_mut_ptr() };
    let (on, off): (libc::c_ulong, libc::c_ulong) = (1, 0);
    let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: the kernel copies the program, which lives until then.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, off, off, off) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

/// One instruction of a filter. A jump continues with the next instruction if it holds, else it
/// skips `skip` of them.
fn instruction(code: u32, operand: u32, skip: u8) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: skip, k: operand }
}
