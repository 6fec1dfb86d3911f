//! Modules put together byte by byte, for what no compiler writes.

use usertypes::Codec;
use usertypes::abi::{OperationSpec, Spec};

/// `loop br 0 end unreachable`.
pub const ENDLESS: &[u8] = &[0x03, 0x40, 0x0c, 0, 0x0b, 0x00];
/// Grows its memory by 1000 pages, over and over.
pub const GROWING: &[u8] = &[0x03, 0x40, 0x41, 0xe8, 0x07, 0x40, 0, 0x1a, 0x0c, 0, 0x0b, 0x00];
/// Calls itself.
pub const NESTING: &[u8] = &[0x20, 0, 0x20, 1, 0x20, 2, 0x10, 1];

/// Where the description lies, and questions.
const DESCRIPTION: u32 = 1024;
const QUESTIONS: u8 = 0xc0;

/// A module of two functions over one page of memory, and a third that does nothing.
pub struct Assembly {
    imports: Vec<u8>,
    start: Vec<u8>,
    exports: bool,
    data: Vec<u8>,
    call: Vec<u8>,
}

/// Exports what a type has, and answers nothing.
pub fn plain() -> Assembly {
    let (imports, start, data) = Default::default();
    Assembly { imports, start, exports: true, data, call: vec![0x42, 0] }
}

/// Describes itself as a type with one operation, `go`, and does `otherwise` for every other call.
pub fn hostile(otherwise: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    let go = OperationSpec { name: "go".to_owned(), reads: false, arguments: Vec::new(), mode: None };
    Spec { operations: vec![go], modes: Vec::new(), combines: false }.encode(&mut data);
    let answer = i64::from(DESCRIPTION) << 32 | data.len() as i64;
    // if entry == 0 return answer
    let mut call = vec![0x20, 0, 0x45, 0x04, 0x40, 0x42];
    put_signed(&mut call, answer);
    call.extend([0x0f, 0x0b]);
    call.extend(otherwise);
    Assembly { data, call, ..plain() }.bytes()
}

impl Assembly {
    pub fn importing(mut self, module: &str, name: &str) -> Self {
        self.imports.push(1);
        put_name(&mut self.imports, module);
        put_name(&mut self.imports, name);
        // A global of 32 bits, so that functions keep their numbers.
        self.imports.extend([0x03, 0x7f, 0]);
        self
    }

    pub fn starting(mut self) -> Self {
        self.start = vec![2];
        self
    }

    pub fn calling(mut self, body: &[u8]) -> Self {
        self.call = body.to_vec();
        self
    }

    pub fn without_exports(mut self) -> Self {
        self.exports = false;
        self
    }

    pub fn bytes(self) -> Vec<u8> {
        let mut exports = vec![3];
        for (name, kind, index) in [("memory", 2, 0), ("anabranch_allocate", 0, 0), ("anabranch_call", 0, 1)]
        {
            put_name(&mut exports, name);
            exports.extend([kind, index]);
        }
        let mut code = vec![3];
        put_body(&mut code, &[0x41, QUESTIONS, 0]);
        put_body(&mut code, &self.call);
        put_body(&mut code, &[]);
        let mut data = vec![1, 0, 0x41];
        put_signed(&mut data, i64::from(DESCRIPTION));
        data.push(0x0b);
        put_len(&mut data, self.data.len());
        data.extend(&self.data);
        let types = vec![3, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 3, 0x7f, 0x7f, 0x7f, 1, 0x7e, 0x60, 0, 0];
        let sections: [(u8, Vec<u8>); 8] = [
            (1, types),
            (2, self.imports),
            (3, vec![3, 0, 1, 2]),
            (5, vec![1, 0, 1]),
            (7, if self.exports { exports } else { Vec::new() }),
            (8, self.start),
            (10, code),
            (11, data),
        ];
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        for (number, content) in sections.into_iter().filter(|(_, content)| !content.is_empty()) {
            module.push(number);
            put_len(&mut module, content.len());
            module.extend(content);
        }
        module
    }
}

fn put_len(out: &mut Vec<u8>, mut len: usize) {
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
}

fn put_signed(out: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = value as u8 & 0x7f;
        value >>= 7;
        if (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0) {
            return out.push(byte);
        }
        out.push(byte | 0x80);
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    put_len(out, name.len());
    out.extend(name.as_bytes());
}

fn put_body(out: &mut Vec<u8>, body: &[u8]) {
    put_len(out, body.len() + 2);
    out.push(0);
    out.extend(body);
    out.push(0x0b);
}
