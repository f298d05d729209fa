package kvevent

import (
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// field is a field of an event, whatever its position or name.
type field uint8

const (
	fieldOther field = iota // not needed here
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockTokens
	fieldAdapterID
	fieldMedium
	fieldAdapter // SGLang 0.5.18 puts a map with the salt here
	fieldExtraKeys
	fieldGroup
	fieldSpec
	fieldSalt
	fieldLocality
)

// The order of fields behind the tag in the array form (vLLM up to 0.23; each
// release added some at the end).
var (
	storedOrder = []field{
		fieldHashes, fieldParent, fieldTokens, fieldBlockTokens, fieldAdapterID, fieldMedium,
		fieldAdapter, fieldExtraKeys, fieldGroup, fieldSpec,
	}
	removedOrder = []field{fieldHashes, fieldMedium, fieldGroup}
)

// kindOf returns the kind of a tag and the order of its fields, 0 if unknown.
func kindOf(tag []byte) (Kind, []field) {
	switch string(tag) {
	case "BlockStored":
		return Stored, storedOrder
	case "BlockRemoved":
		return Removed, removedOrder
	case "AllBlocksCleared":
		return Cleared, nil
	}
	return 0, nil
}

// fieldOf returns the field of a key in the map form.
func fieldOf(key []byte) field {
	switch string(key) {
	case "block_hashes":
		return fieldHashes
	case "parent_block_hash":
		return fieldParent
	case "token_ids":
		return fieldTokens
	case "block_size":
		return fieldBlockTokens
	case "lora_id":
		return fieldAdapterID
	case "medium":
		return fieldMedium
	case "lora_name":
		return fieldAdapter
	case "extra_keys":
		return fieldExtraKeys
	case "group_idx":
		return fieldGroup
	case "kv_cache_spec_kind":
		return fieldSpec
	case "cache_salt":
		return fieldSalt
	case "locality":
		return fieldLocality
	}
	return fieldOther
}

// field reads one value into the event and returns what follows it.
func (d *Decoder) field(f field, b []byte, e *Event) (rest []byte, err error) {
	switch f {
	case fieldHashes:
		if d.batch.hashes, rest, err = appendHashes(d.batch.hashes, b); err == nil {
			return rest, nil
		}
		return skipNil(b, err)
	case fieldTokens:
		if d.batch.tokens, rest, err = appendTokens(d.batch.tokens, b); err == nil {
			return rest, nil
		}
		return skipNil(b, err)
	case fieldParent:
		return readParent(b, e)
	case fieldBlockTokens:
		e.BlockTokens, _, rest, err = readNumber(b)
	case fieldAdapterID:
		d.loraID, _, rest, err = readNumber(b)
	case fieldMedium:
		e.Medium, rest, err = readMedium(b)
	case fieldAdapter:
		return d.adapter(b, e)
	case fieldExtraKeys:
		d.extraAt = b
		return skip(b)
	case fieldGroup:
		var said bool
		if e.Group, said, rest, err = readNumber(b); !said {
			e.Group = NotSaid
		}
	case fieldSpec:
		e.Spec, rest, err = readSpec(b)
	case fieldSalt:
		var salt []byte
		if salt, rest, err = readText(b); err == nil {
			e.Salt = d.intern(salt)
		}
	case fieldLocality:
		var where []byte
		if where, rest, err = readText(b); err == nil {
			e.Remote = string(where) == "REMOTE"
		}
	default:
		return skip(b)
	}
	return rest, err
}

// complete reads what needs the other fields: extra keys hold the adapter's
// name too, and a salt only at the root.
func (d *Decoder) complete(e *Event) error {
	if e.Kind != Stored {
		return nil
	}
	if e.Adapter == "" && d.loraID > 0 {
		d.label = strconv.AppendInt(append(d.label[:0], '#'), int64(d.loraID), 10)
		e.Adapter = d.intern(d.label)
	}
	if d.extraAt == nil {
		return nil
	}
	_, err := d.extraKeys(d.extraAt, e)
	return err
}

// skipNil passes over a list that is nil; anything else is an error.
func skipNil(b []byte, err error) ([]byte, error) {
	if msgp.IsNil(b) {
		return b[1:], nil
	}
	return b, err
}

// readParent reads the block before a run. The llm-d simulator names 0 at the
// root, which no digest is.
func readParent(b []byte, e *Event) ([]byte, error) {
	e.Parent, e.HasParent = 0, false
	if msgp.IsNil(b) {
		return b[1:], nil
	}
	h, rest, err := readHash(b)
	if err != nil {
		return b, err
	}
	e.Parent, e.HasParent = h, h != 0
	return rest, nil
}

// readMedium reads where blocks lie.
func readMedium(b []byte) (Medium, []byte, error) {
	name, rest, err := readText(b)
	if err != nil {
		return 0, b, err
	}
	switch string(name) {
	case "", "GPU":
		return Device, rest, nil
	case "CPU", "CPU_PINNED":
		return Host, rest, nil
	case "STORAGE", "DISK", "EXTERNAL":
		return Disk, rest, nil
	}
	return OtherMedium, rest, nil
}

// readSpec reads the kind of attention of a group.
func readSpec(b []byte) (Spec, []byte, error) {
	kind, rest, err := readText(b)
	if err != nil {
		return 0, b, err
	}
	switch string(kind) {
	case "", "unknown":
		return SpecNotSaid, rest, nil
	case "full_attention", "mla_attention", "sink_full_attention":
		return SpecFull, rest, nil
	}
	return SpecOther, rest, nil
}

// adapter reads an adapter's name, or SGLang's map with the salt.
func (d *Decoder) adapter(b []byte, e *Event) ([]byte, error) {
	pairs, inner, err := readMap(b)
	if err != nil {
		name, rest, err := readText(b)
		if err == nil {
			e.Adapter = d.intern(name)
		}
		return rest, err
	}
	for range pairs {
		key, value, err := readText(inner)
		if err != nil {
			return b, err
		}
		f := fieldOf(key)
		if f != fieldSalt {
			f = fieldOther
		}
		if inner, err = d.field(f, value, e); err != nil {
			return b, err
		}
	}
	return inner, nil
}
