package index

import "warmpath/dataplane/fleet"

// Tier says where a node keeps a cached block. The best tier is the lowest.
type Tier uint8

// The tiers of an engine's cache. Their credit is what a unit there counts for
// against one that has to be computed, in quarters of a unit: see MatchTiers.
const (
	Device Tier = iota // memory of the accelerator: CreditDevice
	Host               // memory of the machine: CreditHost
	Disk               // local or remote storage: CreditDisk

	Tiers = 3
)

// Credits of a unit by its best tier, in quarters of a unit.
const (
	CreditDevice = 4
	CreditHost   = 3
	CreditDisk   = 1
)

var tierNames = [Tiers]string{"device", "host", "disk"}

// String returns the tier's name in configuration and metrics.
func (t Tier) String() string { return tierNames[t] }

// A position is a slot and a tier in one number: what a set of holders has a
// bit for. Those of Device are the slots themselves.
const positions = Tiers * fleet.MaxSlots

func position(slot int, tier Tier) int { return int(tier)*fleet.MaxSlots + slot }

// slotOf and tierOf undo position.
func slotOf(position int) int { return position % fleet.MaxSlots }

func tierOf(position int) Tier { return Tier(position / fleet.MaxSlots) }
