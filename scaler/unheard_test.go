package scaler

import (
	"testing"

	"warmpath/scaler/actuate"
)

// TestUnheardTouchesNoOrphan: a scaler that no router listens to, as another one scales
// there, ends nothing that it does not own, whatever it is told to do with such nodes.
func TestUnheardTouchesNoOrphan(t *testing.T) {
	for _, heard := range []bool{false, true} {
		b := NewBook(BookSettings{Epoch: "y", Orphans: "remove", StartUpSeconds: 60, Offers: []Offer{{Name: "a"}}}, nil)
		others := []actuate.Instance{{Key: "a-x1", ID: "i-1", Phase: actuate.Pending}}
		ended := false
		do := func(e BookEvent) {
			for _, effect := range b.Step(e) {
				switch effect.(type) {
				case CallDelete:
					ended = true
				case CallList:
					for _, effect := range b.Step(Listed{NowNs: e.at() + 1, Offer: "a", AskedNs: e.at(), Instances: others}) {
						if _, ok := effect.(CallDelete); ok {
							ended = true
						}
					}
				}
			}
		}
		for second := int64(1); second < 100; second++ {
			do(Elapsed{second * 1e9})
			if heard {
				do(Watched{NowNs: second*1e9 + 2})
			}
		}
		if ended != heard {
			t.Errorf("routers listen: %v; it ended another's node: %v", heard, ended)
		}
	}
}
