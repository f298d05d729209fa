// Package actuatetest holds what every actuator must do, as tests that each provider's
// own tests run against the real thing: processes, scripts, servers.
//
// It owns the meaning of actuate.Actuator where its words leave room, and nothing of any
// provider. It may assume that the actuators it is given talk to one provider, and
// that nobody else makes nodes of their fleets there. It ends the nodes that it made, also
// when a test fails, and fails if one stays.
package actuatetest
