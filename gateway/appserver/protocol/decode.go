// Package protocol holds the shapes of the v2 client protocol and the decoding
// of request parameters. It knows no behaviour. Error texts follow the wording
// that clients of the protocol match on.
package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// Decode reads params into dst, a pointer to a struct whose fields carry `wire`
// tags: the member's name, then options. "opt" allows absence and null,
// "default" allows absence only, "exp" marks a member that needs the
// experimental capability, "expnull" one that needs it for null too. Unknown members are ignored, and of a member that is
// given twice the last one counts. It returns the experimental members that
// were given.
func Decode(params json.RawMessage, dst any) (experimental []string, err error) {
	if params == nil || kindOf(params) == 'n' {
		return nil, errors.New("missing field `params`")
	}
	if w, ok := dst.(wireValue); ok {
		return nil, w.decodeWire(params)
	}
	v := reflect.ValueOf(dst).Elem()
	err = decodeStruct(params, v, &experimental)
	return experimental, err
}

// NoMore refuses parameters of a method that has none.
func NoMore(params json.RawMessage) error {
	if params == nil || kindOf(params) == 'n' {
		return nil
	}
	empty := true
	if kindOf(params) == '{' {
		err := members(params, func(string, json.RawMessage) error { empty = false; return nil })
		if err != nil || empty {
			return err
		}
	}
	return wrongType(params, "unit")
}

// wireValue is implemented by types with a shape of their own.
type wireValue interface{ decodeWire(raw []byte) error }

// strict is implemented by structures that refuse unknown members.
type strict interface{ refuseUnknown() }

// variants is implemented by string enumerations.
type variants interface{ Variants() []string }

type field struct {
	name               string
	index              int
	opt, fallback, exp bool
	expNull            bool
}

var fieldCache sync.Map // reflect.Type -> []field

func fieldsOf(t reflect.Type) []field {
	if f, ok := fieldCache.Load(t); ok {
		return f.([]field)
	}
	var out []field
	for i := range t.NumField() {
		tag, ok := t.Field(i).Tag.Lookup("wire")
		if !ok {
			continue
		}
		parts := strings.Split(tag, ",")
		f := field{name: parts[0], index: i}
		for _, p := range parts[1:] {
			f.opt = f.opt || p == "opt"
			f.fallback = f.fallback || p == "default"
			f.exp = f.exp || p == "exp"
			f.expNull = f.expNull || p == "expnull"
		}
		out = append(out, f)
	}
	fieldCache.Store(t, out)
	return out
}

// members splits a JSON object, keeping the order of its keys.
func members(raw []byte, each func(key string, value json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		if err := each(tok.(string), value); err != nil {
			return err
		}
	}
	return nil
}

func decodeStruct(raw []byte, v reflect.Value, experimental *[]string) error {
	raw = bytes.TrimSpace(raw)
	if kindOf(raw) != '{' {
		return wrongType(raw, "struct "+v.Type().Name())
	}
	fields := fieldsOf(v.Type())
	given := make([]json.RawMessage, len(fields))
	var order []int
	_, refuse := v.Interface().(strict)
	err := members(raw, func(key string, value json.RawMessage) error {
		for i, f := range fields {
			if f.name != key {
				continue
			}
			if given[i] == nil {
				order = append(order, i)
			}
			given[i] = value
			return nil
		}
		if refuse {
			return unknownField(key, fields)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, i := range order {
		f, value := fields[i], given[i]
		null := f.opt && kindOf(value) == 'n'
		if f.exp && experimental != nil && string(value) != "false" && (!null || f.expNull) {
			*experimental = append(*experimental, f.name)
		}
		if null {
			continue
		}
		if err := decodeValue(value, v.Field(f.index)); err != nil {
			return err
		}
	}
	for i, f := range fields {
		if given[i] == nil && !f.opt && !f.fallback {
			return fmt.Errorf("missing field `%s`", f.name)
		}
	}
	return nil
}

func unknownField(key string, fields []field) error {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return errors.New(strings.Replace(UnknownVariant(key, names).Error(), "variant", "field", 1))
}

var rawType = reflect.TypeFor[json.RawMessage]()

func decodeValue(raw []byte, v reflect.Value) error {
	raw = bytes.TrimSpace(raw)
	if v.Type() == rawType {
		v.SetBytes(bytes.Clone(raw))
		return nil
	}
	if v.CanAddr() {
		if w, ok := v.Addr().Interface().(wireValue); ok {
			return w.decodeWire(raw)
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if kindOf(raw) == 'n' {
			v.SetZero()
			return nil
		}
		p := reflect.New(v.Type().Elem())
		if err := decodeValue(raw, p.Elem()); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case reflect.String:
		return decodeString(raw, v)
	case reflect.Bool:
		if k := kindOf(raw); k != 't' {
			return wrongType(raw, "a boolean")
		}
		v.SetBool(raw[0] == 't')
		return nil
	case reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint, reflect.Int32:
		return decodeInt(raw, v)
	case reflect.Slice:
		return decodeSlice(raw, v)
	case reflect.Map:
		return decodeMap(raw, v)
	case reflect.Struct:
		return decodeStruct(raw, v, nil)
	}
	return fmt.Errorf("cannot decode into %s", v.Type())
}

func decodeString(raw []byte, v reflect.Value) error {
	e, enum := v.Interface().(variants)
	if kindOf(raw) != '"' {
		if enum {
			return wrongType(raw, "string or map")
		}
		return wrongType(raw, "a string")
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	if enum {
		if err := oneOf(s, e.Variants()); err != nil {
			return err
		}
	}
	v.SetString(s)
	return nil
}

func decodeInt(raw []byte, v reflect.Value) error {
	want := map[reflect.Kind]string{
		reflect.Int64: "i64", reflect.Int32: "i32", reflect.Uint16: "u16", reflect.Uint32: "u32", reflect.Uint64: "usize", reflect.Uint: "u64",
	}[v.Kind()]
	if kindOf(raw) != '0' {
		return wrongType(raw, want)
	}
	if v.CanInt() {
		n, err := strconv.ParseInt(string(raw), 10, v.Type().Bits())
		if err != nil {
			return wrongNumber(raw, want)
		}
		v.SetInt(n)
		return nil
	}
	n, err := strconv.ParseUint(string(raw), 10, v.Type().Bits())
	if err != nil {
		return wrongNumber(raw, want)
	}
	v.SetUint(n)
	return nil
}

func decodeSlice(raw []byte, v reflect.Value) error {
	if kindOf(raw) != '[' {
		return wrongType(raw, "a sequence")
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	out := reflect.MakeSlice(v.Type(), len(parts), len(parts))
	for i, p := range parts {
		if err := decodeValue(p, out.Index(i)); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

func decodeMap(raw []byte, v reflect.Value) error {
	if kindOf(raw) != '{' {
		return wrongType(raw, "a map")
	}
	out := reflect.MakeMap(v.Type())
	err := members(raw, func(key string, value json.RawMessage) error {
		e := reflect.New(v.Type().Elem()).Elem()
		if err := decodeValue(value, e); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(key), e)
		return nil
	})
	v.Set(out)
	return err
}

// kindOf classifies a JSON text: '{' '[' '"' 'n' (null), 't' (boolean), '0'
// (number).
func kindOf(raw []byte) byte {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return 'n'
	}
	switch c := raw[0]; c {
	case '{', '[', '"', 'n':
		return c
	case 't', 'f':
		return 't'
	default:
		return '0'
	}
}

// tagOf reads the type tag of an internally tagged union.
func tagOf(raw []byte, union string, names []string) (string, error) {
	if kindOf(raw) != '{' {
		return "", wrongType(raw, "internally tagged enum "+union)
	}
	var tag struct {
		Type json.RawMessage `wire:"type"`
	}
	if _, err := Decode(raw, &tag); err != nil {
		return "", err
	}
	switch kindOf(tag.Type) {
	case '"':
	case '0':
		return "", fmt.Errorf("invalid value: %s, expected variant index 0 <= i < %d", found(tag.Type), len(names))
	default:
		return "", wrongType(tag.Type, "variant identifier")
	}
	var s string
	if err := json.Unmarshal(tag.Type, &s); err != nil {
		return "", err
	}
	return s, oneOf(s, names)
}
