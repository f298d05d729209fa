package kvevent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"
)

// TestVLLMHashesAreTheEngines computes the digests of captured blocks: the
// engine ran with sha256_cbor, PYTHONHASHSEED=0 and whole digests in events.
func TestVLLMHashesAreTheEngines(t *testing.T) {
	blocks, salted := 0, 0
	digests := map[uint64][sha256.Size]byte{}
	var d Decoder
	paths, err := filepath.Glob("testdata/captures/bs128_bytes_*.kvcap")
	check(t, err)
	more, err := filepath.Glob(sharedCaptures + "bs128_bytes_*.kvcap")
	check(t, err)
	for _, path := range append(paths, more...) {
		for _, m := range capture(t, path) {
			seq, payload, _ := lastTwo(m.frames)
			if seq == endOfReplay {
				continue
			}
			b, err := d.Decode(payload)
			check(t, err)
			for i := range b.Events {
				e := &b.Events[i]
				digest := VLLMRoot("0")
				if e.HasParent {
					var ok bool
					if digest, ok = digests[e.Parent]; !ok {
						t.Fatalf("%s: parent %x was not seen", path, e.Parent)
					}
				}
				for j, name := range e.Hashes {
					var extra []byte
					if j == 0 && !e.HasParent && e.Salt != "" {
						extra = VLLMSalt(e.Salt, true)
						salted++
					}
					digest = VLLMBlock(digest, e.Tokens[j*e.BlockTokens:(j+1)*e.BlockTokens], extra)
					if VLLMName(digest) != name || !strings.Contains(string(payload), string(digest[:])) {
						t.Fatalf("%s: block %d is %x, the engine says %x", path, j, digest, name)
					}
					digests[name] = digest
					blocks++
				}
			}
		}
	}
	if blocks < 4 || salted == 0 {
		t.Errorf("%d blocks, %d salted", blocks, salted)
	}
	t.Logf("%d blocks, %d salted", blocks, salted)
}

// Values from hashlib and cbor2.
func TestHashes(t *testing.T) {
	page := SGLangPage(nil, []uint32{1, 2, 70000})
	next := SGLangPage(page[:], []uint32{3})
	salted := SGLangPage(SGLangRoot([]byte("tenant")), []uint32{1})
	root := VLLMRoot("0")
	plain := VLLMBlock(root, []uint32{0, 23, 24, 255, 256, 65535, 65536, 4294967295}, nil)
	bare := VLLMBlock(root, []uint32{1}, VLLMSalt("s", false))
	tag := VLLMBlock(root, []uint32{1}, VLLMSalt("s", true))
	for name, c := range map[string]struct{ got, want string }{
		"sglang page":   {hex.EncodeToString(page[:]), want["page"]},
		"sglang next":   {hex.EncodeToString(next[:]), want["next"]},
		"sglang salted": {hex.EncodeToString(salted[:]), want["salted"]},
		"vllm root":     {hex.EncodeToString(root[:]), want["root"]},
		"vllm block":    {hex.EncodeToString(plain[:]), want["plain"]},
		"vllm bare":     {hex.EncodeToString(bare[:]), want["bare"]},
		"vllm tagged":   {hex.EncodeToString(tag[:]), want["tagged"]},
		"prefix of 0":   {PrefixName(nil, 64), want["prefix0"]},
		"prefix of 1":   {PrefixName([]uint32{7}, 64), want["prefix1"]},
		"prefix of 2":   {PrefixName([]uint32{7, 8, 9}, 2), want["prefix2"]},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
	if int64(SGLangName(page)) != int64(binary.BigEndian.Uint64(page[:8])) {
		t.Error("name of a page")
	}
	if SGLangRoot(nil) != nil {
		t.Error("a prompt without a salt starts with nothing")
	}
	if VLLMRoot("a\xff") != VLLMRoot("a\uFFFD") {
		t.Error("broken text")
	}
}

var want = map[string]string{
	"page":    "313a9de55e88265f756e61a8793c45193dade4a5b645f7f35082452e6b133604",
	"next":    "4b4aa06670392de8107e0ff3fd3ed39fa9e5ecd54c1770d422d7a841036b70c6",
	"salted":  "08aecec28d83c8ece62da0562dd7affd94d61c2b78fe28a3506b2aff72364231",
	"root":    "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
	"plain":   "39532d759036eca7efd7a6e039e216836a50436ef6b04f2f261c9e2f453fb3ec",
	"bare":    "279c843f8d5f9e38fec0af41e595b7733f58ced9fa696f53203c32fe6be072cd",
	"tagged":  "62c67e0ca34d6c328f406448b87bcbc73ca2e7f5e14de712ee5a11e36aa3aa41",
	"prefix0": "2e38e77b22c314a449e91fafed92a43826ac6aa403ae6a8acb6cf58239fbaf5d",
	"prefix1": "24a6ade6d35f1e5ecc7a2982ec631d0848f6d1a5bd903c1be2c04491e4cc224c",
	"prefix2": "958dc7f1527821480f1bcb75a603b88f240257f91c18105676841a8501abf27b",
}
