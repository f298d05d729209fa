package config

// unavailable names, by key, the feature that this binary would need for any
// value other than the default. Indexes of lists are left out. A feature that
// arrives takes its lines out of this table and of unavailableValues; nothing
// else changes.
var unavailable = map[string]string{
	"site.region": "choice by distance",
	"index.sweep": "a sweep interval (entries age continuously)",
	"keys_file":   "API keys",
}

// unavailableValues is the same for single values of a key.
var unavailableValues = map[string]map[string]string{}

// notAvailable is the complaint about a value that would turn feature on.
func notAvailable(feature string) complaint {
	return complaint{"not available in this build: " + feature, "remove the key or keep its default"}
}
