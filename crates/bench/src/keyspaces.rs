//! Keyspaces that live for one measurement.

use crate::redis::Target;
use crate::transactions::{Connection, RunError, order};
use std::time::{Duration, Instant};

/// How long a process may take to know of a new keyspace.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn open(url: &Target) -> Result<Connection, RunError> {
    Connection::open(url).map_err(|error| RunError::Connect(url.clone(), error))
}

fn command(url: &Target, words: &[&str]) -> Result<(), RunError> {
    order(&mut open(url)?, words.iter().map(|word| word.as_bytes().to_vec()).collect())
}

/// Creates a keyspace with these options, anew if there is one, and waits until every process knows it.
pub(crate) fn create(urls: &[Target], keyspace: &str, options: &[&str]) -> Result<(), RunError> {
    let first = urls.first().ok_or_else(|| RunError::Refused("no server was named".into()))?;
    // Most often there is none to drop; if there is one that cannot be, it cannot be created either.
    let _ = command(first, &["KEYSPACE", "DROP", keyspace]);
    command(first, &[&["KEYSPACE", "CREATE", keyspace], options].concat())?;
    let end = Instant::now() + PATIENCE;
    for url in urls {
        while let Err(error) = command(url, &["KEYSPACE", "USE", keyspace]) {
            if Instant::now() > end {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Drops a keyspace.
pub(crate) fn remove(urls: &[Target], keyspace: &str) -> Result<(), RunError> {
    urls.first().map_or(Ok(()), |first| command(first, &["KEYSPACE", "DROP", keyspace]))
}
