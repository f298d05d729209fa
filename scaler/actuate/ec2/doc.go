// Package ec2 makes nodes of instances at AWS EC2.
//
// # Marks
//
// Each instance, and each of its disks, carries the tags warmpath:fleet and warmpath:key,
// and its key as Name, from the moment that it is made. They are all that this package
// goes by: List is DescribeInstances by the first of them, all pages or an error, and
// nothing without the fleet's mark is ever ended. Two actuators of one fleet in a region see
// each other's nodes.
//
// # One instance a key
//
// Create lists the fleet first and returns the instance that has the key, also one that has
// ended. That alone would not do: EC2's lists lag behind what it has done, by seconds and
// at times by minutes ("Eventual consistency" in its developer guide), and two processes may
// look at once. So RunInstances carries a ClientToken made of fleet and key: a second
// request with it makes nothing and is answered with the first one's instance, listed or
// not. The token alone would not do either: EC2's page on it ("Ensuring idempotency") has
// promised it for 24 hours after the instance has ended and no longer, and servers that
// speak EC2's language may not know tokens. By then the list is right.
//
// A request with that token and other settings, as after a change of the configuration, is
// an error whose outcome is unknown: the first one may have made a node. One whose instance
// has ended and is not listed any more returns it as Ended. Where a request names a subnet,
// EC2 keeps tokens by availability zone: between a subnet and one in another zone, only the
// list stands against a second instance, so change it when no node is on its way.
//
// RunInstances is attempted once, and again only when EC2 says that it did nothing as it was
// asked too often. All other calls the SDK attempts again by itself.
//
// What this process made less than five minutes ago is in its List, whether EC2 lists it
// yet or not. After a restart it may take EC2 as long to show it.
//
// # Phases
//
//	pending                             Pending
//	running                             Running
//	stopping, stopped, shutting-down    Ending
//	terminated                          Ended
//
// A stopped instance still costs its disks and can be started by anybody, so it is not
// Ended: Delete ends it. Nothing here stops one: an instance that shuts itself down ends,
// and so does a spot instance that is taken back. URL is there once the instance has its
// address; Public needs a subnet or a template that gives one. Since is the launch time,
// Detail EC2's reason for the state.
//
// # Errors
//
// EC2's code and words are in each error, and the id of its request in the log at level
// debug. What is a refusal is decided by the code: credentials, quotas, capacity, settings.
// To be throttled, not to be answered in time, a failure inside EC2 (5xx, but for a lack of
// capacity, which it reports so) and every code that is not known are none: what was done is
// unknown. Credentials that cannot be found are a refusal, as nothing was sent.
//
// # In an offer
//
//   - name: eu-g6
//     provider: ec2
//     quota: 40
//     ec2: {region: eu-south-1, launch_template: "vllm:3", instance_type: g6.xlarge, spot: true, max_price: "0.90",
//     subnet: subnet-0abc, security_groups: [sg-0abc], key_name: ops, instance_profile: vllm-node, image: ami-0abc,
//     user_data_file: /etc/warmpath/user-data, address: private, port: 8000, profile: warmpath}
//
// A launch template alone will do, and so will an image and a type. Credentials are as the
// SDK finds them: its environment variables, the profile of its shared files, the role of the
// host. The files are read once, and again after EC2 has refused what was in them. With
// endpoint, another server that speaks EC2's language is asked.
//
// # What it needs
//
//	{"Version": "2012-10-17", "Statement": [
//	  {"Effect": "Allow", "Action": ["ec2:DescribeInstances", "ec2:RunInstances"], "Resource": "*"},
//	  {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "*",
//	   "Condition": {"StringEquals": {"ec2:CreateAction": "RunInstances"}}},
//	  {"Effect": "Allow", "Action": "ec2:TerminateInstances", "Resource": "*",
//	   "Condition": {"StringLike": {"aws:ResourceTag/warmpath:fleet": "*"}}},
//	  {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "arn:aws:iam::123456789012:role/vllm-node"}
//	]}
//
// PassRole is for the role of an instance profile, and not needed without one. Spot instances
// need the role AWSServiceRoleForEC2Spot, which is there or takes iam:CreateServiceLinkedRole
// once; an encrypted disk takes leave to use its key; an image that a template names as a
// parameter takes ssm:GetParameters. Termination protection must be off.
//
// It may assume that nobody else changes the marks. It never stops or starts an instance,
// never tags one that is there, never makes more than one a request, and keeps nothing on
// disk. The SDK reads its own environment variables and files, and nothing else does.
package ec2
