// Package kube is the source of nodes that a Kubernetes Service, or any EndpointSlices,
// name: each endpoint that is ready is one.
//
// It owns the watch of those slices and what it means for the set of nodes:
//
//   - It tells of the union of all slices, first when all have been listed, and then
//     whenever a change makes another set. An endpoint in several slices is one node, as is
//     a pod with addresses of both families: its IPv4 address is used.
//   - An endpoint whose conditions do not say whether it is ready is ready.
//   - One that terminates leaves at once, whether it still serves or not: its node then
//     drains, and has the pod's grace period for that. terminationGracePeriodSeconds should
//     be as long as timeouts.drain_node.
//   - One that is no longer ready, or gone from all slices without having been told to
//     end, leaves when that has been so for 30 s, as a record that DNS leaves out twice:
//     a slow probe or slices that are being rewritten drain no node.
//   - Where not one endpoint is ready, none leaves for that, and the source says that it
//     fails: so it looks when the cluster has lost sight of its machines. The router looks
//     at nodes itself.
//   - A Service without a single slice is a failure, not an empty fleet: there is none of
//     that name, or not yet. Slices without endpoints are an empty fleet: that is how a
//     workload looks that was scaled to zero.
//
// As with all sources, while it cannot look its last set stands, and it says so.
//
// A node is named by its pod, so that it is the same after a restart of the router, or by
// its address if there is no pod or its name does not fit.
//
// What it needs, in the namespace of the Service:
//
//	apiVersion: rbac.authorization.k8s.io/v1
//	kind: Role
//	metadata: {name: warmpath-discovery, namespace: inference}
//	rules:
//	  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
//
// It may assume that the API server's word is newer than what it said before. It
// contacts no node, reads no pods, and writes nothing.
package kube
