//! The dependency graph: arrows between our crates only go down, and pure crates use only crates that are pure.
//!
//! Normal and build dependencies count. Dev-dependencies do not: a test may look at its crate from above.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;
use super::purity::PURE_CRATES;

/// Our crates by layer, from the ground up. A crate may depend on those of lower layers. What only checks and measures lies
/// above the product, so the product links none of it.
const LAYERS: &[(&str, &[&str])] = &[
    ("ground", &["types", "usertypes", "datatypes", "protocol"]),
    ("blocks", &["journal", "mvcc", "replication"]),
    ("models", &["strict", "causal", "branch"]),
    ("front", &["resp", "gateway"]),
    ("engines", &["scripts"]),
    ("driver", &["runtime"]),
    ("product", &["server"]),
    ("baselines", &["baselines"]),
    ("checking", &["checker"]),
    ("simulation", &["simulator"]),
    ("load", &["bench"]),
    ("experiments", &["figures"]),
    ("laboratory", &["lab"]),
    ("tools", &["xtask"]),
    ("examples", &["auction"]),
];

/// The dependencies inside a layer, from user to used. Whoever adds one says why in a decision record.
const SIDEWAYS: &[(&str, &str)] = &[
    ("datatypes", "types"),
    ("datatypes", "usertypes"),
    ("protocol", "types"),
    ("protocol", "datatypes"),
    ("gateway", "resp"),
];

/// The crates that a pure crate may use: they compute, and reach for nothing outside their arguments.
const PURE_DEPENDENCIES: &[&str] = &[
    "crc",
    "crc-catalog",
    "crc32fast",
    "equivalent",
    "fastrand",
    "foldhash",
    "hashbrown",
    "itoa",
    "memchr",
    "smallvec",
    "thiserror",
    "triomphe",
    "xxhash-rust",
    // Locks of instances that threads share, in `protocol::hosted` only (decision 0002).
    "parking_lot",
    "parking_lot_core",
    "lock_api",
    "redox_syscall",
    "windows-link",
    "scopeguard",
    // SHA-256 and what it brings, which asks the processor what it can do.
    "sha2",
    "digest",
    "block-buffer",
    "crypto-common",
    "hybrid-array",
    "typenum",
    "cpufeatures",
    // The consensus library and what it brings (decision 0009): its draws have one possible value, its logger discards.
    "raft",
    "raft-proto",
    "protobuf",
    "bytes",
    "byteorder",
    "fxhash",
    "libc",
    "getrandom",
    "ppv-lite86",
    "rand",
    "rand_chacha",
    "rand_core",
    "slog",
    "erased-serde",
    "serde",
    "serde_core",
    "serde_json",
    "zmij",
    "zerocopy",
    // Its build script's: they run in the compiler's process.
    "protobuf-build",
    "protobuf-codegen",
    "bitflags",
    "regex",
    "regex-automata",
    "regex-syntax",
    "aho-corasick",
    "anyhow",
    "getset",
    "proc-macro2",
    "quote",
    "rustversion",
    "serde_derive",
    "syn",
    "unicode-ident",
    "wasi",
    "zerocopy-derive",
    // Build-time halves: macros and feature tests.
    "cfg-if",
    "thiserror-impl",
];

/// One package of the resolved graph.
struct Package {
    name: String,
    /// The folder of a crate of ours; nothing for the field's.
    folder: Option<String>,
    is_macro: bool,
    /// The ids of normal and build dependencies.
    dependencies: Vec<String>,
}

type Graph = BTreeMap<String, Package>;

/// Finds dependencies that go up or sideways, impure dependencies of pure crates, and known bugs behind features.
pub fn check(metadata: &Value) -> Result<Vec<Finding>> {
    let graph = read_graph(metadata)?;
    Ok([arrows(&graph), impure_dependencies(&graph), mutant_features(metadata)?].concat())
}

/// Finds features that build known bugs in: these hang on debug assertions, so that no release build can have one.
fn mutant_features(metadata: &Value) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in list(metadata, "packages")? {
        if package["source"].is_null() && !package["features"]["mutants"].is_null() {
            let message = "a known bug is a variant for `types::Mutants`, not a feature";
            findings.push(Finding::error(Path::new(text(package, "manifest_path")?), 0, message));
        }
    }
    Ok(findings)
}

fn read_graph(metadata: &Value) -> Result<Graph> {
    let root = Path::new(text(metadata, "workspace_root")?);
    let mut graph = Graph::new();
    for package in list(metadata, "packages")? {
        let manifest = Path::new(text(package, "manifest_path")?);
        let folder = manifest.strip_prefix(root).ok().filter(|_| package["source"].is_null());
        let folder = folder
            .and_then(|path| path.parent()?.file_name())
            .map(|name| name.to_string_lossy().into_owned());
        let is_macro =
            list(package, "targets")?.iter().filter_map(|target| target["kind"].as_array()).flatten();
        let is_macro = is_macro.into_iter().any(|kind| kind == "proc-macro");
        let name = text(package, "name")?.to_owned();
        graph.insert(
            text(package, "id")?.to_owned(),
            Package { name, folder, is_macro, dependencies: Vec::new() },
        );
    }
    for node in list(&metadata["resolve"], "nodes")? {
        let package = graph.get_mut(text(node, "id")?).context("a node without a package")?;
        for dependency in list(node, "deps")? {
            if list(dependency, "dep_kinds")?.iter().any(|kind| kind["kind"] != "dev") {
                package.dependencies.push(text(dependency, "pkg")?.to_owned());
            }
        }
    }
    Ok(graph)
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("`cargo metadata` without `{field}`"))
}

fn list<'a>(value: &'a Value, field: &str) -> Result<&'a Vec<Value>> {
    value[field].as_array().with_context(|| format!("`cargo metadata` without `{field}`"))
}

fn layer_of(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|(_, crates)| crates.contains(&folder))
}

fn manifest_error(folder: &str, message: String) -> Finding {
    let path = if folder == "xtask" { Path::new("xtask").into() } else { Path::new("crates").join(folder) };
    Finding::error(&path.join("Cargo.toml"), 0, message)
}

/// Finds crates without a layer and dependencies that do not go down.
fn arrows(graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in graph.values() {
        let Some(from) = &package.folder else { continue };
        let Some(layer) = layer_of(from) else {
            findings.push(manifest_error(
                from,
                "this crate has no layer; give it one in xtask/src/tidy/layers.rs".into(),
            ));
            continue;
        };
        for to in package.dependencies.iter().filter_map(|id| graph.get(id)?.folder.as_ref()) {
            let goes_down = layer_of(to).is_some_and(|below| below < layer);
            if !goes_down && !SIDEWAYS.contains(&(from, to)) {
                let message =
                    format!("`{from}` ({}) must not depend on `{to}`: arrows only go down", LAYERS[layer].0);
                findings.push(manifest_error(from, message));
            }
        }
    }
    findings
}

/// Finds what pure crates reach, through any number of steps, and is neither pure nor allowed.
fn impure_dependencies(graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in graph.values() {
        let Some(folder) = package.folder.as_ref().filter(|name| PURE_CRATES.contains(&name.as_str())) else {
            continue;
        };
        let mut seen = BTreeSet::new();
        let mut pending: Vec<&String> = package.dependencies.iter().collect();
        while let Some(id) = pending.pop() {
            let Some(used) = graph.get(id).filter(|_| seen.insert(id)) else { continue };
            let allowed = match &used.folder {
                Some(ours) => PURE_CRATES.contains(&ours.as_str()),
                None => PURE_DEPENDENCIES.contains(&used.name.as_str()),
            };
            if !allowed {
                let message = format!(
                    "the pure crate `{folder}` reaches `{}`, which is not known to be pure",
                    used.name
                );
                findings.push(manifest_error(folder, message));
            } else if !used.is_macro {
                // What a macro uses runs in the compiler.
                pending.extend(&used.dependencies);
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of packages named by their ids; those of `LAYERS` are ours.
    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let mut graph = Graph::new();
        let names = edges.iter().flat_map(|(from, to)| to.iter().chain([from]));
        for &name in names {
            let folder = layer_of(name).map(|_| name.to_owned());
            let package = Package {
                name: name.into(),
                folder,
                is_macro: name.ends_with("-impl"),
                dependencies: vec![],
            };
            graph.insert(name.into(), package);
        }
        for (from, to) in edges {
            graph.get_mut(*from).unwrap().dependencies = to.iter().map(|&name| name.to_owned()).collect();
        }
        graph
    }

    fn messages(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.message.as_str()).collect()
    }

    #[test]
    fn known_bugs_behind_a_feature_fail() {
        let found = |features: &str| {
            let packages = format!(
                r#"{{"packages": [{{"source": null, "manifest_path": "a/Cargo.toml", "features": {features}}}]}}"#
            );
            mutant_features(&serde_json::from_str(&packages).unwrap()).unwrap().len()
        };
        assert_eq!([found(r#"{"mutants": []}"#), found(r#"{"default": []}"#)], [1, 0]);
    }

    #[test]
    fn arrows_down_and_listed_arrows_sideways_pass() {
        let graph =
            graph(&[("runtime", &["gateway", "types"]), ("gateway", &["resp"]), ("mvcc", &["types"])]);
        assert_eq!(arrows(&graph), []);
    }

    #[test]
    fn arrows_up_and_unlisted_arrows_sideways_fail() {
        let graph = graph(&[("types", &["mvcc"]), ("strict", &["causal"])]);
        assert_eq!(
            messages(&arrows(&graph)),
            [
                "`strict` (models) must not depend on `causal`: arrows only go down",
                "`types` (ground) must not depend on `mvcc`: arrows only go down",
            ]
        );
    }

    #[test]
    fn the_product_links_nothing_of_the_laboratory() {
        for instrument in ["baselines", "checker", "simulator", "bench", "figures"] {
            assert_eq!(arrows(&graph(&[("server", &["runtime"]), ("lab", &["server", instrument])])), []);
            for from in ["server", "runtime"] {
                let findings = arrows(&graph(&[(from, &[instrument])]));
                let manifest = format!("crates/{from}/Cargo.toml");
                assert_eq!(
                    findings.iter().map(|finding| &finding.file).collect::<Vec<_>>(),
                    [Path::new(&manifest)]
                );
            }
        }
    }

    #[test]
    fn a_crate_without_a_layer_fails() {
        let mut graph = graph(&[("types", &[])]);
        graph.get_mut("types").unwrap().folder = Some("attic".into());
        assert_eq!(arrows(&graph).len(), 1);
    }

    #[test]
    fn a_pure_crate_that_reaches_a_socket_through_another_crate_fails() {
        let graph = graph(&[("mvcc", &["types"]), ("types", &["smallvec", "tokio"]), ("tokio", &["mio"])]);
        assert_eq!(
            messages(&impure_dependencies(&graph)),
            [
                "the pure crate `mvcc` reaches `tokio`, which is not known to be pure",
                "the pure crate `types` reaches `tokio`, which is not known to be pure",
            ]
        );
    }

    #[test]
    fn a_pure_crate_may_use_allowed_crates_and_what_their_macros_use() {
        let graph = graph(&[
            ("types", &["thiserror"]),
            ("thiserror", &["thiserror-impl"]),
            ("thiserror-impl", &["syn"]),
        ]);
        assert_eq!(impure_dependencies(&graph), []);
    }

    #[test]
    fn a_dev_dependency_does_not_count_and_a_normal_one_does() {
        let kinds = |kind: &str| format!(r#"{{"pkg":"b","dep_kinds":[{{"kind":{kind}}}]}}"#);
        for (kind, expected) in [("\"dev\"", 0), ("null", 1), ("\"build\"", 1)] {
            let package = |id: &str| {
                format!(
                    r#"{{"id":"{id}","name":"{id}","source":null,"manifest_path":"/w/crates/{id}/Cargo.toml","targets":[]}}"#
                )
            };
            let metadata = format!(
                r#"{{"workspace_root":"/w","packages":[{},{}],"resolve":{{"nodes":[{{"id":"a","deps":[{}]}}]}}}}"#,
                package("a"),
                package("b"),
                kinds(kind)
            );
            let graph = read_graph(&serde_json::from_str(&metadata).unwrap()).unwrap();
            assert_eq!(graph["a"].dependencies.len(), expected, "{kind}");
            assert_eq!(graph["a"].folder.as_deref(), Some("a"));
        }
    }
}
