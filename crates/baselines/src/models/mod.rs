//! The product's models with what is there to be measured beside them.
//!
//! Each accepts a few words more than the product's and hands on what it does not know. A keyspace of a baseline is stored with
//! its model's options and one field more, which the product's model refuses: no program serves what it does not link.

mod causal;
mod strict;

pub use self::causal::CausalBaselines;
pub use self::strict::StrictBaselines;

use protocol::model::StoredOptions;

/// The field of stored options that names a baseline.
const FIELD: &str = "baseline";

/// The baseline of a keyspace, and its options without that.
fn split(options: &StoredOptions) -> (Option<String>, StoredOptions) {
    let mut rest = options.clone();
    let name = rest.as_object_mut().and_then(|fields| fields.remove(FIELD));
    (name.and_then(|name| name.as_str().map(str::to_owned)), rest)
}

/// Options with the name of a baseline.
fn joined(mut options: StoredOptions, name: Option<&str>) -> StoredOptions {
    if let (Some(fields), Some(name)) = (options.as_object_mut(), name) {
        fields.insert(FIELD.to_owned(), name.into());
    }
    options
}
