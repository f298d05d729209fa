package scaler

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func openJournal(t *testing.T, folder string) *Journal {
	t.Helper()
	j, err := OpenJournal(folder)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func writeTo(t *testing.T, j *Journal, records ...Record) {
	t.Helper()
	for _, r := range records {
		if err := j.Append(r); err != nil {
			t.Fatal(err)
		}
	}
}

func closeJournal(t *testing.T, j *Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// bookOf is what a Book knows that goes on from a journal.
func bookOf(records []Record) string {
	b := NewBook(BookSettings{Epoch: "x", Offers: []Offer{{Name: "a"}}}, records)
	gone := make([]string, len(b.tombs))
	for i := range b.tombs {
		gone[i] = b.tombs[i].key
	}
	return fmt.Sprintf("%+v number %d gone %v", b.Nodes(), b.number, gone)
}

// someLife are the records of a few nodes, in every stage.
func someLife() []Record {
	return []Record{
		{Key: "a-x1", Offer: "a", Stage: StageAsked, Why: "the load takes it", Number: 1},
		{Key: "a-x1", Offer: "a", ID: "i-1", Stage: StageComing, Number: 1},
		{Key: "a-x2", Offer: "a", Stage: StageAsked, Number: 2},
		{Key: "a-x1", Offer: "a", ID: "i-1", URL: "http://1", Stage: StageServing, Number: 2},
		{Key: "a-x2", Number: 2, Why: "refused for quota: \"8 of 8\"\nsecond line"},
		{Key: "a-x3", Offer: "a", ID: "i-3", URL: "http://3", Stage: StageLeaving, Number: 3},
		{Key: "a-x3", Offer: "a", ID: "i-3", URL: "http://3", Stage: StageEnding, Why: "one too many: ½ idle", Number: 3},
	}
}

// TestJournalIsCut: a process that dies at any byte of a record leaves the state
// before it, or with all of it the state after; and what is written next is read.
func TestJournalIsCut(t *testing.T) {
	life := someLife()
	for _, cut := range []int{4, len(life) - 1} {
		folder := t.TempDir()
		j := openJournal(t, folder)
		writeTo(t, j, life[:cut]...)
		whole := j.size
		writeTo(t, j, life[cut])
		end := j.size
		closeJournal(t, j)
		path := filepath.Join(folder, journalName)
		text, err := os.ReadFile(path)
		if err != nil || int64(len(text)) != end {
			t.Fatalf("%d bytes, want %d, %v", len(text), end, err)
		}
		for at := whole; at <= end; at++ {
			if err := os.WriteFile(path, text[:at], 0o600); err != nil {
				t.Fatal(err)
			}
			want := life[:cut]
			if at == end {
				want = life[:cut+1]
			}
			again := openJournal(t, folder)
			if got := bookOf(again.Records); got != bookOf(want) {
				t.Fatalf("record %d cut at byte %d of %d:\n%s\nwant\n%s", cut, at-whole, end-whole, got, bookOf(want))
			}
			if at%8 != 0 && at < end-2 {
				closeJournal(t, again)
				continue
			}
			next := Record{Key: "a-x9", Offer: "a", Stage: StageAsked, Number: 9}
			writeTo(t, again, next)
			closeJournal(t, again)
			last := openJournal(t, folder)
			if got := bookOf(last.Records); got != bookOf(append(slices.Clone(want), next)) {
				t.Fatalf("record %d cut at byte %d, then another: %s", cut, at-whole, got)
			}
			closeJournal(t, last)
		}
	}
}

// TestJournalIsDamaged: damage that no crash makes is an error that names file and line,
// says what to do, and leaves the file as it is.
func TestJournalIsDamaged(t *testing.T) {
	folder := t.TempDir()
	j := openJournal(t, folder)
	writeTo(t, j, someLife()...)
	closeJournal(t, j)
	path := filepath.Join(folder, journalName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	spoilt := func(at int, line string) []byte {
		all := slices.Clone(lines)
		all[at] = []byte(line + "\n")
		return bytes.Join(all, nil)
	}
	for name, c := range map[string]struct {
		text  []byte
		words string
	}{
		"a middle line is cut":    {spoilt(3, string(lines[3][:len(lines[3])/2])), "line 4"},
		"zeros":                   {spoilt(5, strings.Repeat("\x00", 40)), "line 6"},
		"the last line":           {spoilt(7, `{"key":7}`), "line 8"},
		"an empty line":           {spoilt(2, ""), "line 3"},
		"the first line":          {spoilt(0, `{"epoch":`), "line 1"},
		"the first has no epoch":  {spoilt(0, `{}`), "line 1: it has no epoch"},
		"nothing is left":         {nil, "line 1 is cut"},
		"half of the first line":  {text[:4], "line 1 is cut"},
		"a line that is too long": {spoilt(4, `{"key":"`+strings.Repeat("x", mostLineSize)+`"}`), "line 5"},
	} {
		if err := os.WriteFile(path, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenJournal(folder)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		for _, words := range []string{path, c.words, "mend the line, or move the file away"} {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v: it does not say %q", name, err, words)
			}
		}
		if left, _ := os.ReadFile(path); !bytes.Equal(left, c.text) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	// The remedy works, and the lock was let go of each time.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	closeJournal(t, openJournal(t, folder))
}

// lockedBy is the environment of the process that TestJournalLock starts.
const lockedBy = "-test.run=TestJournalIsHeld$"

// TestJournalIsHeld is another process's part of TestJournalLock: it takes the journal of
// the folder it was started in, says so, and dies when it is killed.
func TestJournalIsHeld(t *testing.T) {
	if !slices.Contains(os.Args, lockedBy) {
		t.Skip("it is TestJournalLock's other process")
	}
	openJournal(t, ".")
	os.Stderr.WriteString("held\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the end of it, or of us
}

// TestJournalLock: of two processes one has the journal, until it ends, be it killed; the
// other one is told so, and changes nothing.
func TestJournalLock(t *testing.T) {
	folder := t.TempDir()
	j := openJournal(t, folder)
	writeTo(t, j, someLife()...)
	if _, err := OpenJournal(folder); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), folder) {
		t.Errorf("twice in this process: %v", err)
	}
	epoch := j.Epoch
	closeJournal(t, j)

	other := exec.Command(os.Args[0], lockedBy, "-test.count=1")
	other.Dir = folder
	said, err := other.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = other.StdinPipe(); err == nil {
		err = other.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := said.Read(make([]byte, 5)); err != nil {
		t.Fatalf("the other process says nothing: %v", err)
	}
	path := filepath.Join(folder, journalName)
	before, _ := os.ReadFile(path)
	_, err = OpenJournal(folder)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), folder) || !strings.Contains(err.Error(), "another scaler has this journal") {
		t.Errorf("while another process has it: %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("what another process has was changed")
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // it was killed
	j = openJournal(t, folder)
	if j.Epoch != epoch || bookOf(j.Records) != bookOf(someLife()) {
		t.Errorf("after it: epoch %s, was %s; %s", j.Epoch, epoch, bookOf(j.Records))
	}
	closeJournal(t, j)
}

// TestJournalIsBounded: however long a process runs, the file holds what is owned, some
// that are gone, and at most so many lines more.
func TestJournalIsBounded(t *testing.T) {
	j := openJournal(t, t.TempDir())
	j.most = 40 // 4,096 times to the disk take long
	path := filepath.Join(j.folder, journalName)
	all := []Record{{Key: "a-stays", Offer: "a", ID: "i", Stage: StageServing}}
	writeTo(t, j, all...)
	rewritten := 0
	for number := int64(1); number <= 60; number++ {
		key := fmt.Sprint("a-x", number)
		records := []Record{{Key: key, Offer: "a", Stage: StageAsked, Number: number}, {Key: key, Offer: "a", ID: "i", Stage: StageEnding, Number: number}, {Key: key, Number: number}}
		all = append(all, records...)
		for _, r := range records {
			writeTo(t, j, r)
			if j.most >= mostLines {
				rewritten++
				j.most = len(j.Records) + 20
			}
			text, err := os.ReadFile(path)
			if err != nil || bytes.Count(text, []byte("\n")) != len(j.Records)+1 || len(j.Records) > 2+60+20 {
				t.Fatalf("%d lines, %d records, %v", bytes.Count(text, []byte("\n")), len(j.Records), err)
			}
		}
	}
	if rewritten < 3 {
		t.Fatalf("it was rewritten %d times", rewritten)
	}
	closeJournal(t, j)
	again := openJournal(t, j.folder)
	defer closeJournal(t, again)
	if bookOf(again.Records) != bookOf(all) || again.most != 2*len(again.Records)+mostLines {
		t.Errorf("%s\nwant\n%s", bookOf(again.Records), bookOf(all))
	}
}

// TestCompactForgetsTheOldest: at the bound nothing is forgotten, beyond it the nodes that
// went first; those that are owned and the number of the latest key never.
func TestCompactForgetsTheOldest(t *testing.T) {
	for _, over := range []int{0, 1, 300} {
		records := []Record{{Key: "a-stays", Offer: "a", Stage: StageServing, Number: 1}}
		for i := range mostTombs + over {
			key := fmt.Sprintf("a-x%04d", i)
			records = append(records, Record{Key: key, Offer: "a", Stage: StageAsked, Number: 2}, Record{Key: key, Number: int64(i)})
		}
		records = append(records, Record{Key: "a-late", Offer: "a", Stage: StageAsked, Number: 3})
		if whole := NewBook(BookSettings{}, records); len(whole.tombs) != mostTombs {
			t.Errorf("a Book remembers %d keys", len(whole.tombs))
		}
		kept := compact(records)
		b := NewBook(BookSettings{}, kept)
		if len(kept) != mostTombs+3 || len(b.tombs) != mostTombs || b.tombs[0].key != fmt.Sprintf("a-x%04d", over) || len(b.Nodes()) != 2 {
			t.Errorf("%d too many: %d kept, %d gone from %s, %d owned", over, len(kept), len(b.tombs), b.tombs[0].key, len(b.Nodes()))
		}
		if want := int64(mostTombs + over - 1); b.number != want {
			t.Errorf("the number is %d, want %d", b.number, want)
		}
		if again := compact(kept); !reflect.DeepEqual(NewBook(BookSettings{}, again), b) {
			t.Error("compacted twice, it is something else")
		}
	}
}

// TestJournalOnAFullDisk: what cannot be written is an error; what a failure left of a
// line does not spoil the next one; and the records that were taken are all there.
func TestJournalOnAFullDisk(t *testing.T) {
	life := someLife()
	folder := t.TempDir()
	j := openJournal(t, folder)
	writeTo(t, j, life[0])
	good := j.file
	full, err := os.OpenFile(filepath.Join(folder, journalName), os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	j.file = full // whose writing fails
	if err := j.Append(life[5]); err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("it cannot be written: %v", err)
	}
	j.file = good
	_ = full.Close()
	// Half of a line went to the disk before it was full, then all of one that the disk
	// did not confirm.
	line := `{"key":"a-x3","offer":"a","id":"i-3","url":"http://3","stage":"leaving","number":3,"why":"` + strings.Repeat("long", 50)
	for i, left := range []string{line, line + "\"}\n"} {
		if _, err := good.WriteAt([]byte(left), j.size); err != nil {
			t.Fatal(err)
		}
		writeTo(t, j, life[1+i])
	}
	closeJournal(t, j)
	again := openJournal(t, folder)
	if bookOf(again.Records) != bookOf(life[:3]) {
		t.Errorf("%s\nwant\n%s", bookOf(again.Records), bookOf(life[:3]))
	}
	closeJournal(t, again)
}

// TestJournalIsNotRewritten: where the folder takes no new file, the old one is gone on
// with, and nothing is lost.
func TestJournalIsNotRewritten(t *testing.T) {
	life := someLife()
	folder := t.TempDir()
	j := openJournal(t, folder)
	if err := os.Mkdir(filepath.Join(folder, journalName+".new"), 0o700); err != nil {
		t.Fatal(err)
	}
	j.most = 3
	writeTo(t, j, life...)
	if j.most == 3 {
		t.Error("it was not tried")
	}
	if err := os.Remove(filepath.Join(folder, journalName+".new")); err != nil {
		t.Fatal(err)
	}
	closeJournal(t, j)
	again := openJournal(t, folder)
	if bookOf(again.Records) != bookOf(life) {
		t.Errorf("%s\nwant\n%s", bookOf(again.Records), bookOf(life))
	}
	closeJournal(t, again)
}

// TestJournalFolder: it is made, and what cannot be one is an error.
func TestJournalFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "made", "here")
	j := openJournal(t, folder)
	if len(j.Epoch) != 6 || len(j.Records) != 1 || j.Records[0] != (Record{}) {
		t.Errorf("a new one: %+v", j)
	}
	closeJournal(t, j)
	file := filepath.Join(folder, journalName)
	if _, err := OpenJournal(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file is no folder: %v", err)
	}
}
