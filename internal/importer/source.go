package importer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sourceFiles are the files of a source, in a stable order.
type sourceFiles struct {
	dir   string // of the source
	names []string
	open  []*os.File
	sizes []int64
	total int64
	done  int64 // bytes that were indexed
	sum   hash.Hash
}

// openFiles opens a file, or the files below a folder whose names end in one of the endings.
func openFiles(path string, endings ...string) (*sourceFiles, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	s := &sourceFiles{sum: sha256.New()}
	if !info.IsDir() {
		s.dir, s.names = filepath.Dir(path), []string{filepath.Base(path)}
	} else {
		s.dir = path
		err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && name != path && strings.EqualFold(d.Name(), attachmentFolder) {
				return fs.SkipDir
			}
			ending := strings.ToLower(filepath.Ext(name))
			if d.Type().IsRegular() && slices.Contains(endings, ending) {
				rel, err := filepath.Rel(path, name)
				s.names = append(s.names, rel)
				return err
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if s.names == nil {
			return nil, fmt.Errorf("there is no file %s in %s", strings.Join(endings, ", "), path)
		}
		slices.Sort(s.names)
	}
	for _, name := range s.names {
		f, err := os.Open(filepath.Join(s.dir, name))
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.open = append(s.open, f)
		info, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.sizes = append(s.sizes, info.Size())
		s.total += info.Size()
	}
	return s, nil
}

// Close implements [Reader].
func (s *sourceFiles) Close() error {
	var err error
	for _, f := range s.open {
		err = errors.Join(err, f.Close())
	}
	return err
}

// reader returns a reader of a file from its beginning, which adds to the digest and the progress,
// and ends with ctx.
func (s *sourceFiles) reader(ctx context.Context, file int, r *Report) io.Reader {
	if len(s.open) > 1 { // a name of the first file alone would make its copy another source
		fmt.Fprintf(s.sum, "%s\x00%d\x00", filepath.ToSlash(s.names[file]), s.sizes[file])
	}
	return &indexing{ctx, s, io.NewSectionReader(s.open[file], 0, s.sizes[file]), r}
}

// digest returns the digest of all that was read.
func (s *sourceFiles) digest() string { return hex.EncodeToString(s.sum.Sum(nil)) }

// read returns a part of a file.
func (s *sourceFiles) read(file int, offset, length int64) ([]byte, error) {
	data := make([]byte, length)
	if _, err := s.open[file].ReadAt(data, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", s.names[file], err)
	}
	return data, nil
}

// indexing is a reader of the first pass.
type indexing struct {
	ctx context.Context
	s   *sourceFiles
	r   io.Reader
	rep *Report
}

func (x *indexing) Read(p []byte) (int, error) {
	if err := x.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := x.r.Read(p)
	x.s.sum.Write(p[:n])
	x.s.done += int64(n)
	x.rep.progress(x.s.done, x.s.total)
	return n, err
}

// bounded bounds what a parser of in holds in memory, since a record may have no end.
type bounded struct {
	in   io.Reader
	n    int64 // bytes that were read
	max  int64
	from func() int64 // where the record begins that is being read
}

// errRecord reports a record above the limit.
var errRecord = errors.New("a record is too large, or has no end")

func (b *bounded) Read(p []byte) (int, error) {
	if b.n-b.from() > b.max {
		return 0, errRecord
	}
	n, err := b.in.Read(p)
	b.n += int64(n)
	return n, err
}

// attachmentFolder is the folder beside a source with the files of its messages.
const attachmentFolder = "attachments"

// maxFile is the limit of one file, in bytes.
const maxFile = 50 << 20

// errTooLarge reports a file above the limit.
var errTooLarge = fmt.Errorf("the file is larger than %d MB", maxFile>>20)

// errNoFile reports a missing file.
var errNoFile = errors.New("the file is not in the folder beside the source")

// openLocal opens a file in a folder, which the name does not leave. Error: errNoFile.
func openLocal(folder, name string) (io.ReadCloser, error) {
	root, err := os.OpenRoot(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoFile
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.Open(filepath.FromSlash(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoFile
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errNoFile
	case info.Size() > maxFile:
		err = errTooLarge
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
