// Package admin is the HTTP surface for operators: metrics, health, nodes,
// decisions, explain, reload and a status page. It reads copies and sends
// events; it owns nothing of the fleet. It listens on loopback unless told
// otherwise, and beyond loopback it wants a bearer token for everything but
// the process's health.
package admin
