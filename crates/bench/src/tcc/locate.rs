//! Asks a cluster which partition keys lie in, and which regions hold it.

use super::plan::{Mix, Plan};
use super::with_plan;
use crate::keyspaces::open;
use crate::redis::Target;
use crate::transactions::{Connection, RunError, Settings, info};
use resp::Value;

/// Keys that one command asks about.
const KEYS_AT_ONCE: usize = 500;

/// The same settings with the workload of [`Plan`]: on the keys of their keyspace, whose name without one is `default`.
///
/// # Errors
/// A server cannot be reached, or does not tell.
pub fn locate(load: Settings, mix: Mix, exponent: Option<f64>) -> Result<Settings, RunError> {
    let keyspace = load.keyspace.clone().unwrap_or_else(|| "default".to_owned());
    let first = load.urls.first().ok_or_else(|| RunError::Refused("no server was named".into()))?;
    let mut connection = open(first)?;
    let description = describe(&mut connection, &keyspace)?;
    let mut keys: Vec<Vec<u32>> = vec![Vec::new(); usize::from(description.partitions)];
    let numbers: Vec<u32> = (0..load.keys.count()).collect();
    for chunk in numbers.chunks(KEYS_AT_ONCE) {
        let names = chunk.iter().map(|key| load.key(*key));
        let command = ["KEYSPACE", "LOCATE", &keyspace].map(|word| word.as_bytes().to_vec());
        let reply = ask(&mut connection, command.into_iter().chain(names).collect())?;
        let found = reply.as_elements().unwrap_or_default();
        let found = found.iter().filter_map(Value::as_integer).filter_map(|at| usize::try_from(at).ok());
        for (key, partition) in chunk.iter().zip(found) {
            if let Some(of) = keys.get_mut(partition) {
                of.push(*key);
            }
        }
    }
    if let Some(empty) = keys.iter().position(Vec::is_empty) {
        return Err(RunError::Refused(format!("there is no key in partition {empty}; take more keys")));
    }
    let held = load.urls.iter().map(|url| held(url, &description)).collect::<Result<Vec<_>, _>>()?;
    Ok(with_plan(load, Plan::new(mix, keys, exponent, held)))
}

/// What `KEYSPACE INFO` tells.
struct Description {
    partitions: u16,
    /// The regions of each partition, if not all hold it.
    placement: Vec<Vec<String>>,
}

fn ask(connection: &mut Connection, command: Vec<Vec<u8>>) -> Result<Value, RunError> {
    let replies = connection.call(&[command]).map_err(|error| RunError::Refused(error.to_string()))?;
    let reply = replies.into_iter().next().unwrap_or(Value::Null);
    match reply.as_error() {
        Some(error) => Err(RunError::Refused(error.into_owned())),
        None => Ok(reply),
    }
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

fn describe(connection: &mut Connection, keyspace: &str) -> Result<Description, RunError> {
    let reply =
        ask(connection, ["KEYSPACE", "INFO", keyspace].map(|word| word.as_bytes().to_vec()).to_vec())?;
    let pairs: Vec<&[Value]> = reply.as_elements().unwrap_or_default().chunks(2).collect();
    let of = |name: &str| pairs.iter().find(|pair| text(&pair[0]) == name).and_then(|pair| pair.get(1));
    let partitions = of("partitions").and_then(Value::as_integer).and_then(|count| u16::try_from(count).ok());
    let partitions = partitions
        .filter(|count| *count > 0)
        .ok_or_else(|| RunError::Refused(format!("KEYSPACE INFO {keyspace} tells no partitions")))?;
    let placement = of("placement").and_then(Value::as_elements).unwrap_or_default();
    Ok(Description { partitions, placement: placement.iter().map(|line| regions(&text(line))).collect() })
}

/// The regions of a line such as `0: a, b`.
fn regions(line: &str) -> Vec<String> {
    let (_, names) = line.split_once(": ").unwrap_or_default();
    names.split(", ").map(str::to_owned).collect()
}

/// The partitions that the server's region holds; all if it holds none, or if it is not known.
fn held(url: &Target, description: &Description) -> Result<Vec<u16>, RunError> {
    let all = (0..description.partitions).collect::<Vec<u16>>();
    let counters = info(&mut open(url)?).unwrap_or_default();
    let here = counters.get("cluster_region").cloned().unwrap_or_default();
    let placed = (0..).zip(&description.placement).filter(|(_, regions)| regions.contains(&here));
    let placed: Vec<u16> = placed.map(|(partition, _)| partition).collect();
    Ok(if placed.is_empty() { all } else { placed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_placement_names_regions() {
        assert_eq!(regions("12: a, c"), ["a", "c"]);
    }
}
