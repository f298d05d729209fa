package scaler

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmpath/scaler/actuate"
	"warmpath/scenariotest"
)

// TestBookScenarios runs testdata/book*.txt; see page.line for the input lines.
func TestBookScenarios(t *testing.T) {
	scenariotest.RunScenes(t, "testdata/book*.txt", func() scenariotest.Scene {
		p := &page{set: BookSettings{Epoch: "x", Orphans: "report", StartUpSeconds: 60}, lists: map[string]listing{}, asked: map[string]int64{}}
		return scenariotest.Scene{Line: p.line, Trace: &p.trace}
	})
}

// listing is how an offer's lists are answered.
type listing struct {
	instances []actuate.Instance
	part      bool
	err       error
}

// page is a Book with what it wrote, a provider of few words and routers.
type page struct {
	set     BookSettings
	book    *Book
	now     int64 // of the scene …
	origin  int64 // … when the Book's clock began
	journal []Record
	lists   map[string]listing
	asked   map[string]int64 // offer → since when a list is open that nobody answers
	watch   []Watch
	seen    bool // the routers can be asked
	trace   strings.Builder
}

// line runs one input line:
//
//	offers a a:quota=2 …               of the configuration, from the next restart on
//	set orphans=adopt drain=30s end_undrained
//	restart                            a new Book, from what was written so far
//	serving a 2                        nodes of a that serve and are listed, with nothing shown
//	start a 2 | drain KEY | undrain KEY   what Plan decided
//	there a KEY=ID:running:URL … [part] | there a error WORDS
//	                                   how a's lists are answered from now on; without it they
//	                                   are shown and stay open
//	listed a KEY=… | listed a error WORDS   answers a list that is open, or was asked just now
//	made KEY ID [pending|running|…[:URL]] [WORDS]   answers a Create, as do …
//	refused KEY quota|… WORDS · unanswered KEY WORDS
//	deleted KEY [ID] · not_deleted KEY WORDS
//	routers KEY=ready|starting|draining|down[:IN_FLIGHT[:drains]] …   what they see from now on
//	silent                             they cannot be asked
//	at 30s                             one step each second until then
//	clock 10s                          one step by a clock that says so
//	callback a                         its provider called
//	show
func (p *page) line(text string) error {
	words := strings.Fields(text)
	rest := func(from int) string { return strings.Join(words[min(from, len(words)):], " ") }
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch words[0] {
	case "offers", "set":
		return p.setting(words)
	case "restart":
		p.origin = p.now
		p.book = NewBook(p.set, p.journal)
		clear(p.asked)
		p.say("restart")
		p.step(Elapsed{p.clock()})
	case "serving":
		count, _ := strconv.Atoi(arg(2))
		p.serving(arg(1), max(1, count))
	case "start":
		count, _ := strconv.Atoi(arg(2))
		p.step(Ordered{NowNs: p.clock(), Start: []Start{{arg(1), max(1, count)}}, Why: "the load takes it"})
	case "drain":
		p.step(Ordered{NowNs: p.clock(), Drain: []string{arg(1)}, Why: "one too many"})
	case "undrain":
		p.step(Ordered{NowNs: p.clock(), Undrain: []string{arg(1)}})
	case "there":
		p.lists[arg(1)] = listingOf(words[2:])
		if asked, open := p.asked[arg(1)]; open {
			p.answer(arg(1), asked, p.lists[arg(1)])
		}
	case "listed":
		p.answer(arg(1), cmp.Or(p.asked[arg(1)], p.clock()), listingOf(words[2:]))
	case "made":
		i := actuate.Instance{Key: arg(1), ID: arg(2), Detail: rest(4)}
		i.Phase, i.URL = phaseAndURL(arg(3))
		p.step(Created{NowNs: p.clock(), Offer: offerOf(arg(1)), Key: arg(1), Instance: i})
	case "refused":
		for r := actuate.Settings; r <= actuate.Capacity; r++ {
			if r.String() == arg(2) {
				p.step(Created{NowNs: p.clock(), Offer: offerOf(arg(1)), Key: arg(1), Err: actuate.Refused(r, errors.New(rest(3)))})
			}
		}
	case "unanswered":
		p.step(Created{NowNs: p.clock(), Offer: offerOf(arg(1)), Key: arg(1), Err: errors.New(rest(2))})
	case "deleted":
		p.step(Deleted{NowNs: p.clock(), Offer: offerOf(arg(1)), Key: arg(1), ID: arg(2)})
	case "not_deleted":
		p.step(Deleted{NowNs: p.clock(), Offer: offerOf(arg(1)), Key: arg(1), Err: errors.New(rest(2))})
	case "routers":
		p.seen, p.watch = true, nil
		for _, w := range words[1:] {
			p.watch = append(p.watch, watchOf(w))
		}
	case "silent":
		p.seen = false
	case "at":
		return p.until(arg(1))
	case "clock":
		d, err := time.ParseDuration(arg(1))
		p.step(Elapsed{int64(d)})
		return err
	case "callback":
		p.book.RelistSoon(arg(1))
		p.step(Elapsed{p.clock()})
	case "show":
		p.show()
	default:
		return errors.New("unknown input line")
	}
	return nil
}

// serving has so many nodes of an offer made that serve.
func (p *page) serving(offer string, count int) {
	p.step(Elapsed{p.clock()})
	p.answer(offer, p.clock(), listing{})
	p.step(Ordered{NowNs: p.clock(), Start: []Start{{offer, count}}})
	all := p.lists[offer]
	p.seen = true
	for i, n := range p.book.Nodes() {
		id := strconv.Itoa(i + 1)
		one := actuate.Instance{Key: n.Key, ID: "i-" + id, URL: "http://" + id, Phase: actuate.Running}
		all.instances = append(all.instances, one)
		p.step(Created{NowNs: p.clock(), Offer: offer, Key: n.Key, Instance: one})
		p.watch = append(p.watch, Watch{Key: n.Key, Phase: Ready})
	}
	p.lists[offer] = all
	p.step(Watched{p.clock(), p.watch})
	p.trace.Reset()
}

func (p *page) clock() int64 { return p.now - p.origin + 1 }

func (p *page) setting(words []string) error {
	if words[0] == "offers" {
		p.set.Offers = nil
	}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch {
		case words[0] == "offers":
			name, _, _ := strings.Cut(key, ":")
			quota, _ := strconv.Atoi(value)
			p.set.Offers = append(p.set.Offers, Offer{Name: name, Quota: quota})
		case key == "orphans":
			p.set.Orphans = value
		case key == "drain":
			d, err := time.ParseDuration(value)
			if err != nil {
				return err
			}
			p.set.DrainNs = int64(d)
		case key == "end_undrained":
			p.set.EndUndrained = true
		default:
			return fmt.Errorf("unknown setting %q", w)
		}
	}
	if p.book == nil && len(p.set.Offers) > 0 {
		p.book = NewBook(p.set, nil)
	}
	return nil
}

func (p *page) until(text string) error {
	d, err := time.ParseDuration(text)
	for err == nil && p.now < int64(d) {
		p.now += 1e9
		if p.seen {
			p.step(Watched{p.clock(), p.watch})
		}
		p.step(Elapsed{p.clock()})
	}
	return err
}

func (p *page) answer(offer string, asked int64, l listing) {
	delete(p.asked, offer)
	p.step(Listed{NowNs: p.clock(), Offer: offer, AskedNs: asked, Instances: slices.Clone(l.instances), Part: l.part, Err: l.err})
}

// offerOf is the offer that a key is of, which it begins with.
func offerOf(key string) string { return key[:strings.LastIndexByte(key, '-')] }

func phaseAndURL(text string) (phase actuate.Phase, url string) {
	name, url, _ := strings.Cut(text, ":")
	for phase = actuate.Ended; phase > actuate.Pending && phase.String() != name; phase-- {
	}
	return phase, url
}

func listingOf(words []string) (l listing) {
	if len(words) > 0 && words[0] == "error" {
		l.err = errors.New(strings.Join(words[1:], " "))
		return l
	}
	for _, w := range words {
		if w == "part" {
			l.part = true
			continue
		}
		key, what, _ := strings.Cut(w, "=")
		id, state, _ := strings.Cut(what, ":")
		i := actuate.Instance{Key: key, ID: id}
		i.Phase, i.URL = phaseAndURL(state)
		l.instances = append(l.instances, i)
	}
	return l
}

func watchOf(word string) Watch {
	key, what, _ := strings.Cut(word, "=")
	parts := strings.Split(what, ":")
	w := Watch{Key: key, Phase: Down}
	for w.Phase > Starting && w.Phase.String() != parts[0] {
		w.Phase--
	}
	if len(parts) > 1 {
		w.InFlight, _ = strconv.ParseInt(parts[1], 10, 64)
	}
	w.Draining = w.Phase == Draining || len(parts) > 2
	return w
}

// step gives the Book an event, and writes what it wants done.
func (p *page) step(e BookEvent) {
	var open []string // lists, which are answered after all that was to be done
	for _, effect := range p.book.Step(e) {
		switch e := effect.(type) {
		case Record:
			p.journal = append(p.journal, e)
			stage := string(e.Stage)
			if stage == "" {
				stage = "gone"
			}
			p.say("  write: %s %s%s: %s", e.Key, stage, words(" id=", e.ID, " url=", e.URL), e.Why)
		case CallCreate:
			p.say("CREATE %s", e.Key)
		case CallDelete:
			p.say("DELETE %s%s", e.Instance.Key, words(" id=", e.Instance.ID))
		case CallList:
			if _, ok := p.lists[e.Offer]; !ok {
				p.say("LIST %s", e.Offer)
				p.asked[e.Offer] = p.clock()
				continue
			}
			open = append(open, e.Offer)
		case DrainNode:
			p.say("routers: %s %s", map[bool]string{false: "drain", true: "take back"}[e.Back], e.Key)
		case PublishNodes:
			names := []string{}
			for _, n := range p.book.Published() {
				names = append(names, n.Key)
			}
			p.say("routers: know %v", names)
		case Tell:
			attrs := ""
			for _, a := range e.Attrs {
				attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
			}
			p.say("  %s: %s%s", map[slog.Level]string{slog.LevelInfo: "info", slog.LevelWarn: "warn", slog.LevelError: "error"}[e.Level], e.Message, attrs)
		}
	}
	for _, offer := range open {
		p.answer(offer, p.clock(), p.lists[offer])
	}
}

// words are the pairs of a name and a value whose value is there.
func words(pairs ...string) (text string) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			text += pairs[i] + pairs[i+1]
		}
	}
	return text
}

func (p *page) say(format string, args ...any) {
	fmt.Fprintf(&p.trace, "%5.0fs ", float64(p.now)/1e9)
	fmt.Fprintf(&p.trace, format+"\n", args...)
}

// show is what readers of the Book see.
func (p *page) show() {
	for _, n := range p.book.Nodes() {
		p.say("%s is %s for %.0f s%s", n.Key, n.Stage, float64(p.book.nowNs-n.StageNs)/1e9, words(" id=", n.ID, ", in its provider's words: ", n.Detail))
	}
	for _, o := range p.book.Offers() {
		started := ""
		if o.StartUpSeconds.Known {
			started = strconv.FormatFloat(o.StartUpSeconds.Value, 'f', 0, 64) + " s"
		}
		p.say("offer %s: uncertain %d%s", o.Name, o.Uncertain, words(", starts in ", started, ", withheld: ", o.Withheld, ", unlisted: ", o.Unlisted))
	}
	for _, o := range p.book.Orphans() {
		p.say("orphan at %s: id=%s%s", o.Offer, o.Instance.ID, words(" key=", o.Instance.Key))
	}
}
