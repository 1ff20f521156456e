package tiles

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/cache"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/singleflight"
)

// pmtiles is a PMTiles file, version 3.
type pmtiles struct {
	file        file
	header      pmHeader
	root        []pmEntry
	directories *cache.Cache[uint64, []pmEntry] // by offset
	bodies      *cache.Cache[uint64, []byte]    // of vector tiles, by offset
	flights     singleflight.Group              // of directories and vector tiles
}

// file is a file of this machine or of a server. It is safe for concurrent use after the first read.
type file interface {
	// readAt fills p with the bytes from an offset.
	readAt(ctx context.Context, p []byte, offset int64) error
	close() error
}

// localFile is a file of this machine.
type localFile struct{ *os.File }

func (f localFile) readAt(_ context.Context, p []byte, offset int64) error {
	_, err := f.ReadAt(p, offset)
	return err
}

func (f localFile) close() error { return f.Close() }

// pmHeader is the part of the header that is read.
type pmHeader struct {
	root, metadata, leaves, data pmSpan
	inside, compression, kind    byte // compressions of directories and tiles; type of tiles
	maxZoom                      byte
}

// pmVector is the type of vector tiles.
const pmVector = 1

// pmSpan is a section of the file.
type pmSpan struct{ offset, length uint64 }

// pmEntry is an entry of a directory: tiles with consecutive ids and the same content, or with
// run 0 a directory of the leaves.
type pmEntry struct{ id, run, length, offset uint64 }

const entrySize = 32 // bytes

// Limits of PMTiles files. A directory has a few thousand entries by convention.
const (
	pmHeaderSize   = 127
	maxDirectory   = 4 << 20  // bytes, unpacked
	maxDirectories = 64 << 20 // bytes in memory
	maxBodies      = 16 << 20 // bytes in memory
	maxDepth       = 4
)

func openPMTiles(path string) (*pmtiles, about, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, about{}, err
	}
	p, a, err := readPMTiles(context.Background(), localFile{f})
	if err != nil {
		return nil, about{}, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return p, a, nil
}

// readPMTiles reads the header, the root directory and the metadata.
func readPMTiles(ctx context.Context, f file) (*pmtiles, about, error) {
	p := &pmtiles{
		file:        f,
		directories: cache.NewSized[uint64](maxDirectories, 0, func(list []pmEntry) int { return entrySize*len(list) + 100 }),
		bodies:      cache.NewSized[uint64](maxBodies, time.Minute, func(body []byte) int { return len(body) + 100 }),
	}
	a, err := p.open(ctx)
	return p, a, err
}

func (p *pmtiles) close() error { return p.file.close() }

func (p *pmtiles) open(ctx context.Context) (about, error) {
	text := make([]byte, pmHeaderSize)
	if err := p.file.readAt(ctx, text, 0); err != nil {
		return about{}, fmt.Errorf("read the header: %w", err)
	}
	var err error
	if p.header, err = parsePMHeader(text); err != nil {
		return about{}, err
	}
	h := p.header
	a := about{maxZoom: min(maxZoom, int(h.maxZoom))}
	switch h.kind {
	case pmVector:
		a.vector = true
	case 2, 3, 4: // PNG, JPEG, WebP
	default:
		return about{}, fmt.Errorf("its tiles have type %d, not MVT, PNG, JPEG or WebP", h.kind)
	}
	if p.root, err = p.directory(ctx, h.root); err != nil {
		return about{}, err
	}
	var about struct{ Attribution string }
	if text, err = p.read(ctx, h.metadata, h.inside, maxDirectory); err == nil {
		err = json.Unmarshal(text, &about)
	}
	a.attribution = about.Attribution
	if err != nil {
		err = fmt.Errorf("read the metadata: %w", err)
	}
	return a, err
}

func parsePMHeader(text []byte) (h pmHeader, err error) {
	if len(text) < pmHeaderSize || string(text[:7]) != "PMTiles" || text[7] != 3 {
		return h, errors.New("not a PMTiles file of version 3")
	}
	for i, span := range []*pmSpan{&h.root, &h.metadata, &h.leaves, &h.data} {
		span.offset, span.length = binary.LittleEndian.Uint64(text[8+16*i:]), binary.LittleEndian.Uint64(text[16+16*i:])
	}
	h.inside, h.compression, h.kind, h.maxZoom = text[97], text[98], text[99], text[101]
	return h, nil
}

// read returns a part of the file, unpacked to at most limit bytes.
func (p *pmtiles) read(ctx context.Context, at pmSpan, compression byte, limit int) ([]byte, error) {
	if at.length > uint64(limit) || at.offset > 1<<62 {
		return nil, fmt.Errorf("%w: a part has %d bytes, from byte %d", errDecode, at.length, at.offset)
	}
	text := make([]byte, at.length)
	if err := p.file.readAt(ctx, text, int64(at.offset)); err != nil {
		return nil, err
	}
	text, err := unpack(text, compression, limit)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDecode, err)
	}
	return text, nil
}

// unpack decompresses by the numbers of PMTiles.
func unpack(text []byte, compression byte, limit int) ([]byte, error) {
	var from io.Reader
	switch compression {
	case 0, 1:
		return text, nil
	case 2:
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		from = z
	case 4:
		z, err := zstd.NewReader(bytes.NewReader(text), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(limit)))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		from = z
	default:
		return nil, fmt.Errorf("compression %d is not supported; use gzip, zstd or none", compression)
	}
	out, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err == nil && len(out) > limit {
		err = fmt.Errorf("unpacked, a part has more than %d bytes", limit)
	}
	return out, err
}

func (p *pmtiles) directory(ctx context.Context, at pmSpan) ([]pmEntry, error) {
	text, err := p.read(ctx, at, p.header.inside, maxDirectory)
	if err != nil {
		return nil, fmt.Errorf("read a directory: %w", err)
	}
	list, err := parseDirectory(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDecode, err)
	}
	return list, nil
}

// leaf returns a directory of the leaves.
func (p *pmtiles) leaf(ctx context.Context, e pmEntry) ([]pmEntry, error) {
	return loadOnce(&p.flights, p.directories, "directory", e.offset, func() ([]pmEntry, error) {
		return p.directory(ctx, pmSpan{p.header.leaves.offset + e.offset, e.length})
	})
}

// body returns the content of a tile. The tiles of deeper zooms are all drawn from one vector tile,
// which is cached for as long as somebody looks around.
func (p *pmtiles) body(ctx context.Context, e pmEntry) ([]byte, error) {
	read := func() ([]byte, error) {
		return p.read(ctx, pmSpan{p.header.data.offset + e.offset, e.length}, p.header.compression, maxTile)
	}
	if p.header.kind != pmVector {
		return read()
	}
	return loadOnce(&p.flights, p.bodies, "tile", e.offset, read)
}

// loadOnce returns the part at an offset from a cache. Concurrent callers load it once.
func loadOnce[V any](flights *singleflight.Group, parts *cache.Cache[uint64, V], kind string, offset uint64, load func() (V, error)) (V, error) {
	v, err, _ := flights.Do(kind+strconv.FormatUint(offset, 10), func() (any, error) { return parts.Load(offset, load) })
	if err != nil {
		return *new(V), err
	}
	return v.(V), nil
}

// parseDirectory parses a directory: columns of ids, runs, lengths and offsets.
func parseDirectory(text []byte) ([]pmEntry, error) {
	var short bool
	next := func() uint64 {
		v, n := binary.Uvarint(text)
		if n <= 0 {
			short = true
			return 0
		}
		text = text[n:]
		return v
	}
	count := next()
	if short || count > uint64(len(text))/4 {
		return nil, errors.New("a directory is cut off")
	}
	list := make([]pmEntry, count)
	var id uint64
	for i := range list {
		id += next()
		list[i].id = id
	}
	for i := range list {
		list[i].run = next()
	}
	for i := range list {
		list[i].length = next()
	}
	for i := range list {
		switch v := next(); {
		case v == 0 && i > 0:
			list[i].offset = list[i-1].offset + list[i-1].length
		case v == 0:
			return nil, errors.New("a directory has no first offset")
		default:
			list[i].offset = v - 1
		}
	}
	if short {
		return nil, errors.New("a directory is cut off")
	}
	return list, nil
}

func (p *pmtiles) tile(ctx context.Context, id ID) (stored, error) {
	n := Hilbert(id)
	entries := p.root
	for range maxDepth {
		e, ok := findEntry(entries, n)
		if !ok {
			return stored{}, nil
		}
		if e.run > 0 {
			body, err := p.body(ctx, e)
			return stored{body: body}, err
		}
		var err error
		if entries, err = p.leaf(ctx, e); err != nil {
			return stored{}, err
		}
	}
	return stored{}, fmt.Errorf("%w: the directories are too deep", errDecode)
}

// findEntry returns the entry of a tile, or of the directory that may have it.
func findEntry(list []pmEntry, id uint64) (pmEntry, bool) {
	i, exact := slices.BinarySearchFunc(list, id, func(e pmEntry, id uint64) int { return cmp.Compare(e.id, id) })
	if !exact {
		i--
	}
	if i < 0 {
		return pmEntry{}, false
	}
	e := list[i]
	return e, e.run == 0 || id < e.id+e.run
}

// Hilbert is the number of a tile in a PMTiles file: all tiles of lower zooms, then the
// position on the Hilbert curve of its zoom.
func Hilbert(id ID) uint64 {
	n := (uint64(1)<<(2*id.Z) - 1) / 3
	x, y := uint64(id.X), uint64(id.Y)
	for s := uint64(1) << id.Z >> 1; s > 0; s >>= 1 {
		var rx, ry uint64
		if x&s != 0 {
			rx = 1
		}
		if y&s != 0 {
			ry = 1
		}
		n += s * s * (3*rx ^ ry)
		if ry == 0 {
			if rx == 1 {
				x, y = s-1-x, s-1-y
			}
			x, y = y, x
		}
	}
	return n
}
