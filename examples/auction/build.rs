//! A module begins every call with fresh memory: a large stack would have to be cleared each time.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|target| target == "wasm32") {
        println!("cargo::rustc-link-arg-cdylib=-zstack-size=32768");
    }
}
