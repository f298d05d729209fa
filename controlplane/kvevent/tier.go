package kvevent

import "warmpath/dataplane/index"

// tierOf is where the index keeps what lies in a medium.
var tierOf = [...]index.Tier{Device: index.Device, Host: index.Host, Disk: index.Disk}

func (m Medium) tier() index.Tier { return tierOf[m] }
