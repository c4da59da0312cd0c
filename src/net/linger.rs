//! Closes a socket so that its peer still reads the last word.

use std::{io, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

/// How long a peer may take to close its side.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes that are read and dropped at a time.
const DROP_BYTES: usize = 4 * 1024;

/// Closes the writing side, then drops what the peer still sends until it closes its own. To close a socket
/// with unread bytes would reset the connection, and a reset takes what the peer has not read yet.
pub(crate) async fn linger(reader: &mut (impl AsyncRead + Unpin), writer: &mut (impl AsyncWrite + Unpin)) {
    let drop_input = async {
        writer.shutdown().await?;
        let mut dropped = BytesMut::with_capacity(DROP_BYTES);
        while reader.read_buf(&mut dropped).await? > 0 {
            dropped.clear();
        }
        io::Result::Ok(())
    };
    match timeout(LINGER, drop_input).await {
        // All was said: how the peer goes is its own affair.
        Ok(_) => {}
        Err(_) => tracing::debug!("the client did not close its side within {LINGER:?}"),
    }
}
