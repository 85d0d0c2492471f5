//go:build cgo

package early

// The C files of this package are compiled in and run as constructors.

import "C"
