package engine

import "github.com/tinylib/msgp/msgp"

// medium is the tier that simulated blocks live in.
const medium = "GPU"

// appendBatch encodes one event batch as vLLM 0.24 and later does: an array
// of timestamp (seconds since 1970), events, data-parallel rank; each event a
// map with the key "type" (vllm/distributed/kv_events.py). adapterID numbers
// the LoRA adapters from 1.
func appendBatch(b []byte, unixSeconds float64, events []Event, blockTokens int, adapterID func(string) int, rank int) []byte {
	b = msgp.AppendArrayHeader(b, 3)
	b = msgp.AppendFloat64(b, unixSeconds)
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for i := range events {
		switch ev := &events[i]; ev.Kind {
		case BlockStored:
			b = appendStored(b, ev, blockTokens, adapterID)
		case BlockRemoved:
			b = msgp.AppendMapHeader(b, 4)
			b = appendTag(b, "BlockRemoved")
			b = appendHashes(b, ev.Hashes)
			b = appendText(b, "medium", medium)
			b = appendNumber(b, "group_idx", 0)
		case AllBlocksCleared:
			b = msgp.AppendMapHeader(b, 1)
			b = appendTag(b, "AllBlocksCleared")
		default:
			panic("BUG: an event without a kind")
		}
	}
	return msgp.AppendInt(b, rank)
}

// appendStored encodes a BlockStored with the keys of a single full-attention
// group, in the order of vLLM 0.32.
func appendStored(b []byte, ev *Event, blockTokens int, adapterID func(string) int) []byte {
	b = msgp.AppendMapHeader(b, 11)
	b = appendTag(b, "BlockStored")
	b = appendHashes(b, ev.Hashes)
	b = msgp.AppendString(b, "parent_block_hash")
	if ev.HasParent {
		b = msgp.AppendUint64(b, ev.Parent)
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendString(b, "token_ids")
	b = msgp.AppendArrayHeader(b, uint32(len(ev.Tokens)))
	for _, id := range ev.Tokens {
		b = msgp.AppendUint32(b, id)
	}
	b = appendNumber(b, "block_size", blockTokens)
	b = msgp.AppendString(b, "lora_id")
	if ev.Adapter == "" {
		b = msgp.AppendNil(b)
	} else {
		b = msgp.AppendInt(b, adapterID(ev.Adapter))
	}
	b = appendText(b, "medium", medium)
	b = msgp.AppendString(b, "lora_name")
	if ev.Adapter == "" {
		b = msgp.AppendNil(b)
	} else {
		b = msgp.AppendString(b, ev.Adapter)
	}
	b = appendExtraKeys(b, ev)
	b = appendNumber(b, "group_idx", 0)
	return appendText(b, "kv_cache_spec_kind", "full_attention")
}

// appendExtraKeys encodes one entry a block: the adapter on every block, the
// salt on the first block of the sequence, nil where there is neither.
func appendExtraKeys(b []byte, ev *Event) []byte {
	b = msgp.AppendString(b, "extra_keys")
	b = msgp.AppendArrayHeader(b, uint32(len(ev.Hashes)))
	for i := range ev.Hashes {
		salted := i == 0 && ev.Salt != ""
		keys := uint32(0)
		if ev.Adapter != "" {
			keys++
		}
		if salted {
			keys++
		}
		if keys == 0 {
			b = msgp.AppendNil(b)
			continue
		}
		b = msgp.AppendArrayHeader(b, keys)
		if ev.Adapter != "" {
			b = msgp.AppendString(b, ev.Adapter)
		}
		if salted {
			b = msgp.AppendString(b, ev.Salt)
		}
	}
	return b
}

func appendTag(b []byte, tag string) []byte { return appendText(b, "type", tag) }

func appendText(b []byte, key, value string) []byte {
	return msgp.AppendString(msgp.AppendString(b, key), value)
}

func appendNumber(b []byte, key string, value int) []byte {
	return msgp.AppendInt(msgp.AppendString(b, key), value)
}

func appendHashes(b []byte, hashes []uint64) []byte {
	b = msgp.AppendString(b, "block_hashes")
	b = msgp.AppendArrayHeader(b, uint32(len(hashes)))
	for _, h := range hashes {
		b = msgp.AppendUint64(b, h)
	}
	return b
}
