// Code generated from proto/. DO NOT EDIT.
export interface MessageField {
  readonly number: number
  /** As the proto names it. */
  readonly name: string
  /** As the generated message names it. */
  readonly property: string
  /** Full name of the message that the field holds. */
  readonly message?: string
  readonly isMap?: true
  /** Whether it holds several numbers, which a message may pack into one element. */
  readonly isPacked?: true
  /** The oneof that the field belongs to. */
  readonly oneof?: string
}
export const REQUESTS: Readonly<Record<string, string>> = {
  "grpc.AgentService/CreateContainer": "grpc.CreateContainerRequest",
  "grpc.AgentService/StartContainer": "grpc.StartContainerRequest",
  "grpc.AgentService/RemoveContainer": "grpc.RemoveContainerRequest",
  "grpc.AgentService/ExecProcess": "grpc.ExecProcessRequest",
  "grpc.AgentService/SignalProcess": "grpc.SignalProcessRequest",
  "grpc.AgentService/WaitProcess": "grpc.WaitProcessRequest",
  "grpc.AgentService/UpdateContainer": "grpc.UpdateContainerRequest",
  "grpc.AgentService/UpdateEphemeralMounts": "grpc.UpdateEphemeralMountsRequest",
  "grpc.AgentService/StatsContainer": "grpc.StatsContainerRequest",
  "grpc.AgentService/PauseContainer": "grpc.PauseContainerRequest",
  "grpc.AgentService/ResumeContainer": "grpc.ResumeContainerRequest",
  "grpc.AgentService/RemoveStaleVirtiofsShareMounts": "grpc.RemoveStaleVirtiofsShareMountsRequest",
  "grpc.AgentService/GetDiagnosticData": "grpc.GetDiagnosticDataRequest",
  "grpc.AgentService/WriteStdin": "grpc.WriteStreamRequest",
  "grpc.AgentService/ReadStdout": "grpc.ReadStreamRequest",
  "grpc.AgentService/ReadStderr": "grpc.ReadStreamRequest",
  "grpc.AgentService/CloseStdin": "grpc.CloseStdinRequest",
  "grpc.AgentService/TtyWinResize": "grpc.TtyWinResizeRequest",
  "grpc.AgentService/UpdateInterface": "grpc.UpdateInterfaceRequest",
  "grpc.AgentService/UpdateRoutes": "grpc.UpdateRoutesRequest",
  "grpc.AgentService/ListInterfaces": "grpc.ListInterfacesRequest",
  "grpc.AgentService/ListRoutes": "grpc.ListRoutesRequest",
  "grpc.AgentService/AddARPNeighbors": "grpc.AddARPNeighborsRequest",
  "grpc.AgentService/GetIPTables": "grpc.GetIPTablesRequest",
  "grpc.AgentService/SetIPTables": "grpc.SetIPTablesRequest",
  "grpc.AgentService/GetMetrics": "grpc.GetMetricsRequest",
  "grpc.AgentService/MemAgentMemcgSet": "grpc.MemAgentMemcgConfig",
  "grpc.AgentService/MemAgentCompactSet": "grpc.MemAgentCompactConfig",
  "grpc.AgentService/CreateSandbox": "grpc.CreateSandboxRequest",
  "grpc.AgentService/DestroySandbox": "grpc.DestroySandboxRequest",
  "grpc.AgentService/OnlineCPUMem": "grpc.OnlineCPUMemRequest",
  "grpc.AgentService/ReseedRandomDev": "grpc.ReseedRandomDevRequest",
  "grpc.AgentService/GetGuestDetails": "grpc.GuestDetailsRequest",
  "grpc.AgentService/MemHotplugByProbe": "grpc.MemHotplugByProbeRequest",
  "grpc.AgentService/SetGuestDateTime": "grpc.SetGuestDateTimeRequest",
  "grpc.AgentService/CopyFile": "grpc.CopyFileRequest",
  "grpc.AgentService/GetOOMEvent": "grpc.GetOOMEventRequest",
  "grpc.AgentService/AddSwap": "grpc.AddSwapRequest",
  "grpc.AgentService/AddSwapPath": "grpc.AddSwapPathRequest",
  "grpc.AgentService/GetVolumeStats": "grpc.VolumeStatsRequest",
  "grpc.AgentService/ResizeVolume": "grpc.ResizeVolumeRequest",
  "grpc.AgentService/SetPolicy": "grpc.SetPolicyRequest",
  "etcdserverpb.KV/Range": "etcdserverpb.RangeRequest",
  "etcdserverpb.KV/Txn": "etcdserverpb.TxnRequest",
  "etcdserverpb.Watch/Watch": "etcdserverpb.WatchRequest",
  "etcdserverpb.Lease/LeaseGrant": "etcdserverpb.LeaseGrantRequest",
  "etcdserverpb.Lease/LeaseRevoke": "etcdserverpb.LeaseRevokeRequest",
  "etcdserverpb.Lease/LeaseKeepAlive": "etcdserverpb.LeaseKeepAliveRequest",
  "grpc.health.v1.Health/Check": "grpc.health.v1.HealthCheckRequest",
  "grpc.health.v1.Health/List": "grpc.health.v1.HealthListRequest",
  "grpc.health.v1.Health/Watch": "grpc.health.v1.HealthCheckRequest",
  "grpc.reflection.v1.ServerReflection/ServerReflectionInfo": "grpc.reflection.v1.ServerReflectionRequest",
  "grpc.Health/Check": "grpc.CheckRequest",
  "grpc.Health/Version": "grpc.CheckRequest",
  "microvm.agent.v1.Introspection/GetVersion": "microvm.agent.v1.GetVersionRequest",
  "microvm.agent.v1.Introspection/GetCapabilities": "microvm.agent.v1.GetCapabilitiesRequest",
  "microvm.agent.v1.Introspection/GetSandbox": "microvm.agent.v1.GetSandboxRequest",
  "microvm.agent.v1.Introspection/ListContainers": "microvm.agent.v1.ListContainersRequest",
  "microvm.agent.v1.Introspection/ListProcesses": "microvm.agent.v1.ListProcessesRequest",
  "microvm.agent.v1.Introspection/ListMounts": "microvm.agent.v1.ListMountsRequest",
  "microvm.agent.v1.Introspection/ListDevices": "microvm.agent.v1.ListDevicesRequest",
  "microvm.agent.v1.Introspection/GetNetwork": "microvm.agent.v1.GetNetworkRequest",
  "microvm.agent.v1.Introspection/ListCalls": "microvm.agent.v1.ListCallsRequest",
  "microvm.agent.v1.Introspection/ListExits": "microvm.agent.v1.ListExitsRequest",
  "microvm.agent.v1.Introspection/AcknowledgeExits": "microvm.agent.v1.AcknowledgeExitsRequest",
  "microvm.agent.v1.Introspection/GetEvents": "microvm.agent.v1.GetEventsRequest",
  "microvm.agent.v1.Introspection/StreamEvents": "microvm.agent.v1.StreamEventsRequest",
  "microvm.agent.v1.Introspection/GetStacks": "microvm.agent.v1.GetStacksRequest",
  "microvm.agent.v1.Introspection/ReadProfile": "microvm.agent.v1.ReadProfileRequest",
  "microvm.agent.v1.Introspection/GetLoopHistogram": "microvm.agent.v1.GetLoopHistogramRequest",
  "microvm.agent.v1.Introspection/ReadOutput": "microvm.agent.v1.ReadOutputRequest",
  "microvm.agent.v1.Introspection/SignalOnHangup": "microvm.agent.v1.SignalOnHangupRequest",
  "microvm.agent.v1.Lifecycle/Detach": "microvm.agent.v1.DetachRequest",
  "microvm.agent.v1.Lifecycle/Attach": "microvm.agent.v1.AttachRequest",
  "microvm.agent.v1.Lifecycle/ListStreams": "microvm.agent.v1.ListStreamsRequest",
  "microvm.agent.v1.Lifecycle/Resumed": "microvm.agent.v1.ResumedRequest",
  "microvm.agent.v1.Lifecycle/GetResume": "microvm.agent.v1.GetResumeRequest",
  "microvm.agent.v1.Lifecycle/Quiesce": "microvm.agent.v1.QuiesceRequest",
  "microvm.agent.v1.Lifecycle/Thaw": "microvm.agent.v1.ThawRequest",
  "microvm.agent.v1.Lifecycle/Rename": "microvm.agent.v1.RenameRequest",
  "metropolis.proto.vm.VMController/EnsureMigrationTarget": "metropolis.proto.vm.EnsureMigrationTargetRequest",
  "metropolis.proto.vm.VMController/MigrationSwitchover": "metropolis.proto.vm.MigrationSwitchoverRequest",
  "metropolis.proto.vm.VMController/RunLease": "metropolis.proto.vm.RunLeaseRequest",
  "metropolis.proto.vm.OOBManagement/Reset": "metropolis.proto.vm.ResetRequest",
  "metropolis.proto.vm.OOBManagement/Console": "metropolis.proto.vm.ConsoleIO",
  "metropolis.proto.vm.Hypervisor/StartMigration": "metropolis.proto.vm.StartMigrationRequest",
  "microvm.instance.v1.InstanceService/EnsureInstance": "microvm.instance.v1.EnsureInstanceRequest",
  "microvm.instance.v1.InstanceService/Expand": "microvm.instance.v1.ExpandRequest",
  "microvm.instance.v1.InstanceService/GetInstance": "microvm.instance.v1.GetInstanceRequest",
  "microvm.instance.v1.InstanceService/ListInstances": "microvm.instance.v1.ListInstancesRequest",
  "microvm.instance.v1.InstanceService/WatchInstances": "microvm.instance.v1.WatchInstancesRequest",
  "microvm.instance.v1.InstanceService/ChangeState": "microvm.instance.v1.ChangeStateRequest",
  "microvm.instance.v1.InstanceService/ReplaceBackend": "microvm.instance.v1.ReplaceBackendRequest",
  "microvm.instance.v1.InstanceService/Plug": "microvm.instance.v1.PlugRequest",
  "microvm.instance.v1.InstanceService/Unplug": "microvm.instance.v1.UnplugRequest",
  "microvm.instance.v1.InstanceService/Snapshot": "microvm.instance.v1.SnapshotRequest",
  "microvm.instance.v1.InstanceService/ListSnapshots": "microvm.instance.v1.ListSnapshotsRequest",
  "microvm.instance.v1.InstanceService/Revert": "microvm.instance.v1.RevertRequest",
  "microvm.instance.v1.InstanceService/RemoveSnapshot": "microvm.instance.v1.RemoveSnapshotRequest",
  "microvm.instance.v1.InstanceService/Remove": "microvm.instance.v1.RemoveRequest",
  "microvm.instance.v1.InstanceService/SuspendInstance": "microvm.instance.v1.SuspendInstanceRequest",
  "microvm.instance.v1.InstanceService/ListSaved": "microvm.instance.v1.ListSavedRequest",
  "microvm.instance.v1.InstanceService/DeleteSaved": "microvm.instance.v1.DeleteSavedRequest",
  "microvm.instance.v1.InstanceService/CloneInstance": "microvm.instance.v1.CloneInstanceRequest",
  "microvm.instance.v1.InstanceService/EnsureTemplate": "microvm.instance.v1.EnsureTemplateRequest",
  "microvm.instance.v1.InstanceService/ListTemplates": "microvm.instance.v1.ListTemplatesRequest",
  "microvm.instance.v1.InstanceService/RemoveTemplate": "microvm.instance.v1.RemoveTemplateRequest",
  "microvm.instance.v1.InstanceService/MigrateInstance": "microvm.instance.v1.MigrateInstanceRequest",
  "microvm.instance.v1.InstanceService/ListHosts": "microvm.instance.v1.ListHostsRequest",
  "microvm.instance.v1.InstanceService/DrainHost": "microvm.instance.v1.DrainHostRequest",
  "microvm.instance.v1.InstanceService/AllocatePort": "microvm.instance.v1.AllocatePortRequest",
  "microvm.instance.v1.InstanceService/Attach": "microvm.instance.v1.AttachRequest",
  "microvm.instance.v1.InstanceService/ListStreams": "microvm.instance.v1.ListStreamsRequest",
  "microvm.instance.v1.InstanceService/ConnectAgent": "microvm.instance.v1.ConnectAgentRequest",
  "microvm.instance.v1.InstanceService/ListCalls": "microvm.instance.v1.ListCallsRequest",
  "microvm.instance.v1.InstanceService/GetMetrics": "microvm.instance.v1.GetMetricsRequest",
  "microvm.controller.v1.ControllerService/RegisterHost": "microvm.controller.v1.RegisterHostRequest",
  "microvm.controller.v1.ControllerService/ListHosts": "microvm.controller.v1.ListHostsRequest",
  "microvm.controller.v1.ControllerService/EnsureVm": "microvm.controller.v1.EnsureVmRequest",
  "microvm.controller.v1.ControllerService/ForecastTarget": "microvm.controller.v1.ForecastTargetRequest",
  "microvm.controller.v1.ControllerService/GetVm": "microvm.controller.v1.GetVmRequest",
  "microvm.controller.v1.ControllerService/ListVms": "microvm.controller.v1.ListVmsRequest",
  "microvm.controller.v1.ControllerService/RemoveVm": "microvm.controller.v1.RemoveVmRequest",
  "microvm.controller.v1.ControllerService/RenewLease": "microvm.controller.v1.RenewLeaseRequest",
  "microvm.instance.v1.Handover/Move": "microvm.instance.v1.MoveRequest",
  "microvm.instance.v1.Handover/FenceVolume": "microvm.instance.v1.FenceVolumeRequest",
  "microvm.instance.v1.SecretService/SetSecret": "microvm.instance.v1.SetSecretRequest",
  "microvm.instance.v1.SecretService/ListSecrets": "microvm.instance.v1.ListSecretsRequest",
  "microvm.instance.v1.SecretService/RemoveSecret": "microvm.instance.v1.RemoveSecretRequest"
}
type Fields = Readonly<Record<string, readonly MessageField[]>>
let fields: Fields | undefined
/** By message. Made at the first use, because a start uses none. */
export function messageFields(): Fields {
  fields ??= {
 "grpc.CreateContainerRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "exec_id",
   "property": "execId"
  },
  {
   "number": 3,
   "name": "string_user",
   "property": "stringUser",
   "message": "grpc.StringUser"
  },
  {
   "number": 4,
   "name": "devices",
   "property": "devices",
   "message": "grpc.Device"
  },
  {
   "number": 5,
   "name": "storages",
   "property": "storages",
   "message": "grpc.Storage"
  },
  {
   "number": 6,
   "name": "OCI",
   "property": "OCI",
   "message": "grpc.Spec"
  },
  {
   "number": 7,
   "name": "sandbox_pidns",
   "property": "sandboxPidns"
  },
  {
   "number": 8,
   "name": "shared_mounts",
   "property": "sharedMounts",
   "message": "grpc.SharedMount"
  },
  {
   "number": 9,
   "name": "stdin_port",
   "property": "stdinPort"
  },
  {
   "number": 10,
   "name": "stdout_port",
   "property": "stdoutPort"
  },
  {
   "number": 11,
   "name": "stderr_port",
   "property": "stderrPort"
  }
 ],
 "grpc.StringUser": [
  {
   "number": 1,
   "name": "uid",
   "property": "uid"
  },
  {
   "number": 2,
   "name": "gid",
   "property": "gid"
  },
  {
   "number": 3,
   "name": "additionalGids",
   "property": "additionalGids"
  }
 ],
 "grpc.Device": [
  {
   "number": 1,
   "name": "id",
   "property": "id"
  },
  {
   "number": 2,
   "name": "type",
   "property": "type"
  },
  {
   "number": 3,
   "name": "vm_path",
   "property": "vmPath"
  },
  {
   "number": 4,
   "name": "container_path",
   "property": "containerPath"
  },
  {
   "number": 5,
   "name": "options",
   "property": "options"
  }
 ],
 "grpc.Storage": [
  {
   "number": 1,
   "name": "driver",
   "property": "driver"
  },
  {
   "number": 2,
   "name": "driver_options",
   "property": "driverOptions"
  },
  {
   "number": 3,
   "name": "source",
   "property": "source"
  },
  {
   "number": 4,
   "name": "fstype",
   "property": "fstype"
  },
  {
   "number": 5,
   "name": "options",
   "property": "options"
  },
  {
   "number": 6,
   "name": "mount_point",
   "property": "mountPoint"
  },
  {
   "number": 7,
   "name": "fs_group",
   "property": "fsGroup",
   "message": "grpc.FSGroup"
  },
  {
   "number": 8,
   "name": "shared",
   "property": "shared"
  }
 ],
 "grpc.FSGroup": [
  {
   "number": 2,
   "name": "group_id",
   "property": "groupId"
  },
  {
   "number": 3,
   "name": "group_change_policy",
   "property": "groupChangePolicy"
  }
 ],
 "grpc.Spec": [
  {
   "number": 1,
   "name": "Version",
   "property": "Version"
  },
  {
   "number": 2,
   "name": "Process",
   "property": "Process",
   "message": "grpc.Process"
  },
  {
   "number": 3,
   "name": "Root",
   "property": "Root",
   "message": "grpc.Root"
  },
  {
   "number": 4,
   "name": "Hostname",
   "property": "Hostname"
  },
  {
   "number": 5,
   "name": "Mounts",
   "property": "Mounts",
   "message": "grpc.Mount"
  },
  {
   "number": 6,
   "name": "Hooks",
   "property": "Hooks",
   "message": "grpc.Hooks"
  },
  {
   "number": 7,
   "name": "Annotations",
   "property": "Annotations",
   "isMap": true
  },
  {
   "number": 8,
   "name": "Linux",
   "property": "Linux",
   "message": "grpc.Linux"
  },
  {
   "number": 9,
   "name": "Solaris",
   "property": "Solaris",
   "message": "grpc.Solaris"
  },
  {
   "number": 10,
   "name": "Windows",
   "property": "Windows",
   "message": "grpc.Windows"
  }
 ],
 "grpc.Process": [
  {
   "number": 1,
   "name": "Terminal",
   "property": "Terminal"
  },
  {
   "number": 2,
   "name": "ConsoleSize",
   "property": "ConsoleSize",
   "message": "grpc.Box"
  },
  {
   "number": 3,
   "name": "User",
   "property": "User",
   "message": "grpc.User"
  },
  {
   "number": 4,
   "name": "Args",
   "property": "Args"
  },
  {
   "number": 5,
   "name": "Env",
   "property": "Env"
  },
  {
   "number": 6,
   "name": "Cwd",
   "property": "Cwd"
  },
  {
   "number": 7,
   "name": "Capabilities",
   "property": "Capabilities",
   "message": "grpc.LinuxCapabilities"
  },
  {
   "number": 8,
   "name": "Rlimits",
   "property": "Rlimits",
   "message": "grpc.POSIXRlimit"
  },
  {
   "number": 9,
   "name": "NoNewPrivileges",
   "property": "NoNewPrivileges"
  },
  {
   "number": 10,
   "name": "ApparmorProfile",
   "property": "ApparmorProfile"
  },
  {
   "number": 11,
   "name": "OOMScoreAdj",
   "property": "OOMScoreAdj"
  },
  {
   "number": 12,
   "name": "SelinuxLabel",
   "property": "SelinuxLabel"
  }
 ],
 "grpc.Box": [
  {
   "number": 1,
   "name": "Height",
   "property": "Height"
  },
  {
   "number": 2,
   "name": "Width",
   "property": "Width"
  }
 ],
 "grpc.User": [
  {
   "number": 1,
   "name": "UID",
   "property": "UID"
  },
  {
   "number": 2,
   "name": "GID",
   "property": "GID"
  },
  {
   "number": 3,
   "name": "AdditionalGids",
   "property": "AdditionalGids",
   "isPacked": true
  },
  {
   "number": 4,
   "name": "Username",
   "property": "Username"
  }
 ],
 "grpc.LinuxCapabilities": [
  {
   "number": 1,
   "name": "Bounding",
   "property": "Bounding"
  },
  {
   "number": 2,
   "name": "Effective",
   "property": "Effective"
  },
  {
   "number": 3,
   "name": "Inheritable",
   "property": "Inheritable"
  },
  {
   "number": 4,
   "name": "Permitted",
   "property": "Permitted"
  },
  {
   "number": 5,
   "name": "Ambient",
   "property": "Ambient"
  }
 ],
 "grpc.POSIXRlimit": [
  {
   "number": 1,
   "name": "Type",
   "property": "Type"
  },
  {
   "number": 2,
   "name": "Hard",
   "property": "Hard"
  },
  {
   "number": 3,
   "name": "Soft",
   "property": "Soft"
  }
 ],
 "grpc.Root": [
  {
   "number": 1,
   "name": "Path",
   "property": "Path"
  },
  {
   "number": 2,
   "name": "Readonly",
   "property": "Readonly"
  }
 ],
 "grpc.Mount": [
  {
   "number": 1,
   "name": "destination",
   "property": "destination"
  },
  {
   "number": 2,
   "name": "source",
   "property": "source"
  },
  {
   "number": 3,
   "name": "type",
   "property": "type"
  },
  {
   "number": 4,
   "name": "options",
   "property": "options"
  }
 ],
 "grpc.Hooks": [
  {
   "number": 1,
   "name": "Prestart",
   "property": "Prestart",
   "message": "grpc.Hook"
  },
  {
   "number": 2,
   "name": "Poststart",
   "property": "Poststart",
   "message": "grpc.Hook"
  },
  {
   "number": 3,
   "name": "Poststop",
   "property": "Poststop",
   "message": "grpc.Hook"
  },
  {
   "number": 4,
   "name": "CreateRuntime",
   "property": "CreateRuntime",
   "message": "grpc.Hook"
  },
  {
   "number": 5,
   "name": "CreateContainer",
   "property": "CreateContainer",
   "message": "grpc.Hook"
  },
  {
   "number": 6,
   "name": "StartContainer",
   "property": "StartContainer",
   "message": "grpc.Hook"
  }
 ],
 "grpc.Hook": [
  {
   "number": 1,
   "name": "Path",
   "property": "Path"
  },
  {
   "number": 2,
   "name": "Args",
   "property": "Args"
  },
  {
   "number": 3,
   "name": "Env",
   "property": "Env"
  },
  {
   "number": 4,
   "name": "Timeout",
   "property": "Timeout"
  }
 ],
 "grpc.Linux": [
  {
   "number": 1,
   "name": "UIDMappings",
   "property": "UIDMappings",
   "message": "grpc.LinuxIDMapping"
  },
  {
   "number": 2,
   "name": "GIDMappings",
   "property": "GIDMappings",
   "message": "grpc.LinuxIDMapping"
  },
  {
   "number": 3,
   "name": "Sysctl",
   "property": "Sysctl",
   "isMap": true
  },
  {
   "number": 4,
   "name": "Resources",
   "property": "Resources",
   "message": "grpc.LinuxResources"
  },
  {
   "number": 5,
   "name": "CgroupsPath",
   "property": "CgroupsPath"
  },
  {
   "number": 6,
   "name": "Namespaces",
   "property": "Namespaces",
   "message": "grpc.LinuxNamespace"
  },
  {
   "number": 7,
   "name": "Devices",
   "property": "Devices",
   "message": "grpc.LinuxDevice"
  },
  {
   "number": 8,
   "name": "Seccomp",
   "property": "Seccomp",
   "message": "grpc.LinuxSeccomp"
  },
  {
   "number": 9,
   "name": "RootfsPropagation",
   "property": "RootfsPropagation"
  },
  {
   "number": 10,
   "name": "MaskedPaths",
   "property": "MaskedPaths"
  },
  {
   "number": 11,
   "name": "ReadonlyPaths",
   "property": "ReadonlyPaths"
  },
  {
   "number": 12,
   "name": "MountLabel",
   "property": "MountLabel"
  },
  {
   "number": 13,
   "name": "IntelRdt",
   "property": "IntelRdt",
   "message": "grpc.LinuxIntelRdt"
  }
 ],
 "grpc.LinuxIDMapping": [
  {
   "number": 1,
   "name": "HostID",
   "property": "HostID"
  },
  {
   "number": 2,
   "name": "ContainerID",
   "property": "ContainerID"
  },
  {
   "number": 3,
   "name": "Size",
   "property": "Size"
  }
 ],
 "grpc.LinuxResources": [
  {
   "number": 1,
   "name": "Devices",
   "property": "Devices",
   "message": "grpc.LinuxDeviceCgroup"
  },
  {
   "number": 2,
   "name": "Memory",
   "property": "Memory",
   "message": "grpc.LinuxMemory"
  },
  {
   "number": 3,
   "name": "CPU",
   "property": "CPU",
   "message": "grpc.LinuxCPU"
  },
  {
   "number": 4,
   "name": "Pids",
   "property": "Pids",
   "message": "grpc.LinuxPids"
  },
  {
   "number": 5,
   "name": "BlockIO",
   "property": "BlockIO",
   "message": "grpc.LinuxBlockIO"
  },
  {
   "number": 6,
   "name": "HugepageLimits",
   "property": "HugepageLimits",
   "message": "grpc.LinuxHugepageLimit"
  },
  {
   "number": 7,
   "name": "Network",
   "property": "Network",
   "message": "grpc.LinuxNetwork"
  }
 ],
 "grpc.LinuxDeviceCgroup": [
  {
   "number": 1,
   "name": "Allow",
   "property": "Allow"
  },
  {
   "number": 2,
   "name": "Type",
   "property": "Type"
  },
  {
   "number": 3,
   "name": "Major",
   "property": "Major"
  },
  {
   "number": 4,
   "name": "Minor",
   "property": "Minor"
  },
  {
   "number": 5,
   "name": "Access",
   "property": "Access"
  }
 ],
 "grpc.LinuxMemory": [
  {
   "number": 1,
   "name": "Limit",
   "property": "Limit"
  },
  {
   "number": 2,
   "name": "Reservation",
   "property": "Reservation"
  },
  {
   "number": 3,
   "name": "Swap",
   "property": "Swap"
  },
  {
   "number": 4,
   "name": "Kernel",
   "property": "Kernel"
  },
  {
   "number": 5,
   "name": "KernelTCP",
   "property": "KernelTCP"
  },
  {
   "number": 6,
   "name": "Swappiness",
   "property": "Swappiness"
  },
  {
   "number": 7,
   "name": "DisableOOMKiller",
   "property": "DisableOOMKiller"
  }
 ],
 "grpc.LinuxCPU": [
  {
   "number": 1,
   "name": "Shares",
   "property": "Shares"
  },
  {
   "number": 2,
   "name": "Quota",
   "property": "Quota"
  },
  {
   "number": 3,
   "name": "Period",
   "property": "Period"
  },
  {
   "number": 4,
   "name": "RealtimeRuntime",
   "property": "RealtimeRuntime"
  },
  {
   "number": 5,
   "name": "RealtimePeriod",
   "property": "RealtimePeriod"
  },
  {
   "number": 6,
   "name": "Cpus",
   "property": "Cpus"
  },
  {
   "number": 7,
   "name": "Mems",
   "property": "Mems"
  }
 ],
 "grpc.LinuxPids": [
  {
   "number": 1,
   "name": "Limit",
   "property": "Limit"
  }
 ],
 "grpc.LinuxBlockIO": [
  {
   "number": 1,
   "name": "Weight",
   "property": "Weight"
  },
  {
   "number": 2,
   "name": "LeafWeight",
   "property": "LeafWeight"
  },
  {
   "number": 3,
   "name": "WeightDevice",
   "property": "WeightDevice",
   "message": "grpc.LinuxWeightDevice"
  },
  {
   "number": 4,
   "name": "ThrottleReadBpsDevice",
   "property": "ThrottleReadBpsDevice",
   "message": "grpc.LinuxThrottleDevice"
  },
  {
   "number": 5,
   "name": "ThrottleWriteBpsDevice",
   "property": "ThrottleWriteBpsDevice",
   "message": "grpc.LinuxThrottleDevice"
  },
  {
   "number": 6,
   "name": "ThrottleReadIOPSDevice",
   "property": "ThrottleReadIOPSDevice",
   "message": "grpc.LinuxThrottleDevice"
  },
  {
   "number": 7,
   "name": "ThrottleWriteIOPSDevice",
   "property": "ThrottleWriteIOPSDevice",
   "message": "grpc.LinuxThrottleDevice"
  }
 ],
 "grpc.LinuxWeightDevice": [
  {
   "number": 1,
   "name": "Major",
   "property": "Major"
  },
  {
   "number": 2,
   "name": "Minor",
   "property": "Minor"
  },
  {
   "number": 3,
   "name": "Weight",
   "property": "Weight"
  },
  {
   "number": 4,
   "name": "LeafWeight",
   "property": "LeafWeight"
  }
 ],
 "grpc.LinuxThrottleDevice": [
  {
   "number": 1,
   "name": "Major",
   "property": "Major"
  },
  {
   "number": 2,
   "name": "Minor",
   "property": "Minor"
  },
  {
   "number": 3,
   "name": "Rate",
   "property": "Rate"
  }
 ],
 "grpc.LinuxHugepageLimit": [
  {
   "number": 1,
   "name": "Pagesize",
   "property": "Pagesize"
  },
  {
   "number": 2,
   "name": "Limit",
   "property": "Limit"
  }
 ],
 "grpc.LinuxNetwork": [
  {
   "number": 1,
   "name": "ClassID",
   "property": "ClassID"
  },
  {
   "number": 2,
   "name": "Priorities",
   "property": "Priorities",
   "message": "grpc.LinuxInterfacePriority"
  }
 ],
 "grpc.LinuxInterfacePriority": [
  {
   "number": 1,
   "name": "Name",
   "property": "Name"
  },
  {
   "number": 2,
   "name": "Priority",
   "property": "Priority"
  }
 ],
 "grpc.LinuxNamespace": [
  {
   "number": 1,
   "name": "Type",
   "property": "Type"
  },
  {
   "number": 2,
   "name": "Path",
   "property": "Path"
  }
 ],
 "grpc.LinuxDevice": [
  {
   "number": 1,
   "name": "Path",
   "property": "Path"
  },
  {
   "number": 2,
   "name": "Type",
   "property": "Type"
  },
  {
   "number": 3,
   "name": "Major",
   "property": "Major"
  },
  {
   "number": 4,
   "name": "Minor",
   "property": "Minor"
  },
  {
   "number": 5,
   "name": "FileMode",
   "property": "FileMode"
  },
  {
   "number": 6,
   "name": "UID",
   "property": "UID"
  },
  {
   "number": 7,
   "name": "GID",
   "property": "GID"
  }
 ],
 "grpc.LinuxSeccomp": [
  {
   "number": 1,
   "name": "DefaultAction",
   "property": "DefaultAction"
  },
  {
   "number": 2,
   "name": "Architectures",
   "property": "Architectures"
  },
  {
   "number": 3,
   "name": "Flags",
   "property": "Flags"
  },
  {
   "number": 4,
   "name": "Syscalls",
   "property": "Syscalls",
   "message": "grpc.LinuxSyscall"
  }
 ],
 "grpc.LinuxSyscall": [
  {
   "number": 1,
   "name": "Names",
   "property": "Names"
  },
  {
   "number": 2,
   "name": "Action",
   "property": "Action"
  },
  {
   "number": 3,
   "name": "errnoret",
   "property": "errnoret",
   "oneof": "ErrnoRet"
  },
  {
   "number": 4,
   "name": "Args",
   "property": "Args",
   "message": "grpc.LinuxSeccompArg"
  }
 ],
 "grpc.LinuxSeccompArg": [
  {
   "number": 1,
   "name": "Index",
   "property": "Index"
  },
  {
   "number": 2,
   "name": "Value",
   "property": "Value"
  },
  {
   "number": 3,
   "name": "ValueTwo",
   "property": "ValueTwo"
  },
  {
   "number": 4,
   "name": "Op",
   "property": "Op"
  }
 ],
 "grpc.LinuxIntelRdt": [
  {
   "number": 1,
   "name": "L3CacheSchema",
   "property": "L3CacheSchema"
  }
 ],
 "grpc.Solaris": [
  {
   "number": 1,
   "name": "dummy",
   "property": "dummy"
  }
 ],
 "grpc.Windows": [
  {
   "number": 1,
   "name": "dummy",
   "property": "dummy"
  }
 ],
 "grpc.SharedMount": [
  {
   "number": 1,
   "name": "name",
   "property": "name"
  },
  {
   "number": 2,
   "name": "src_ctr",
   "property": "srcCtr"
  },
  {
   "number": 3,
   "name": "src_path",
   "property": "srcPath"
  },
  {
   "number": 4,
   "name": "dst_ctr",
   "property": "dstCtr"
  },
  {
   "number": 5,
   "name": "dst_path",
   "property": "dstPath"
  }
 ],
 "grpc.StartContainerRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "grpc.RemoveContainerRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "timeout",
   "property": "timeout"
  }
 ],
 "grpc.ExecProcessRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "exec_id",
   "property": "execId"
  },
  {
   "number": 3,
   "name": "string_user",
   "property": "stringUser",
   "message": "grpc.StringUser"
  },
  {
   "number": 4,
   "name": "process",
   "property": "process",
   "message": "grpc.Process"
  },
  {
   "number": 5,
   "name": "stdin_port",
   "property": "stdinPort"
  },
  {
   "number": 6,
   "name": "stdout_port",
   "property": "stdoutPort"
  },
  {
   "number": 7,
   "name": "stderr_port",
   "property": "stderrPort"
  }
 ],
 "grpc.SignalProcessRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "exec_id",
   "property": "execId"
  },
  {
   "number": 3,
   "name": "signal",
   "property": "signal"
  }
 ],
 "grpc.WaitProcessRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "exec_id",
   "property": "execId"
  }
 ],
 "grpc.UpdateContainerRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "resources",
   "property": "resources",
   "message": "grpc.LinuxResources"
  }
 ],
 "grpc.UpdateEphemeralMountsRequest": [
  {
   "number": 1,
   "name": "storages",
   "property": "storages",
   "message": "grpc.Storage"
  }
 ],
 "grpc.StatsContainerRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "grpc.PauseContainerRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "grpc.ResumeContainerRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "grpc.RemoveStaleVirtiofsShareMountsRequest": [],
 "grpc.GetDiagnosticDataRequest": [
  {
   "number": 1,
   "name": "log_type",
   "property": "logType"
  },
  {
   "number": 2,
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "grpc.WriteStreamRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "exec_id",
   "property": "execId"
  },
  {
   "number": 3,
   "name": "data",
   "property": "data"
  }
 ],
 "grpc.ReadStreamRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "exec_id",
   "property": "execId"
  },
  {
   "number": 3,
   "name": "len",
   "property": "len"
  }
 ],
 "grpc.CloseStdinRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "exec_id",
   "property": "execId"
  }
 ],
 "grpc.TtyWinResizeRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "exec_id",
   "property": "execId"
  },
  {
   "number": 3,
   "name": "row",
   "property": "row"
  },
  {
   "number": 4,
   "name": "column",
   "property": "column"
  }
 ],
 "grpc.UpdateInterfaceRequest": [
  {
   "number": 1,
   "name": "interface",
   "property": "interface",
   "message": "types.Interface"
  }
 ],
 "types.Interface": [
  {
   "number": 1,
   "name": "device",
   "property": "device"
  },
  {
   "number": 2,
   "name": "name",
   "property": "name"
  },
  {
   "number": 3,
   "name": "IPAddresses",
   "property": "IPAddresses",
   "message": "types.IPAddress"
  },
  {
   "number": 4,
   "name": "mtu",
   "property": "mtu"
  },
  {
   "number": 5,
   "name": "hwAddr",
   "property": "hwAddr"
  },
  {
   "number": 6,
   "name": "devicePath",
   "property": "devicePath"
  },
  {
   "number": 7,
   "name": "type",
   "property": "type"
  },
  {
   "number": 8,
   "name": "raw_flags",
   "property": "rawFlags"
  }
 ],
 "types.IPAddress": [
  {
   "number": 1,
   "name": "family",
   "property": "family"
  },
  {
   "number": 2,
   "name": "address",
   "property": "address"
  },
  {
   "number": 3,
   "name": "mask",
   "property": "mask"
  }
 ],
 "grpc.UpdateRoutesRequest": [
  {
   "number": 1,
   "name": "routes",
   "property": "routes",
   "message": "grpc.Routes"
  }
 ],
 "grpc.Routes": [
  {
   "number": 1,
   "name": "Routes",
   "property": "Routes",
   "message": "types.Route"
  }
 ],
 "types.Route": [
  {
   "number": 1,
   "name": "dest",
   "property": "dest"
  },
  {
   "number": 2,
   "name": "gateway",
   "property": "gateway"
  },
  {
   "number": 3,
   "name": "device",
   "property": "device"
  },
  {
   "number": 4,
   "name": "source",
   "property": "source"
  },
  {
   "number": 5,
   "name": "scope",
   "property": "scope"
  },
  {
   "number": 6,
   "name": "family",
   "property": "family"
  },
  {
   "number": 7,
   "name": "flags",
   "property": "flags"
  },
  {
   "number": 8,
   "name": "mtu",
   "property": "mtu"
  }
 ],
 "grpc.ListInterfacesRequest": [],
 "grpc.ListRoutesRequest": [],
 "grpc.AddARPNeighborsRequest": [
  {
   "number": 1,
   "name": "neighbors",
   "property": "neighbors",
   "message": "grpc.ARPNeighbors"
  }
 ],
 "grpc.ARPNeighbors": [
  {
   "number": 1,
   "name": "ARPNeighbors",
   "property": "ARPNeighbors",
   "message": "types.ARPNeighbor"
  }
 ],
 "types.ARPNeighbor": [
  {
   "number": 1,
   "name": "toIPAddress",
   "property": "toIPAddress",
   "message": "types.IPAddress"
  },
  {
   "number": 2,
   "name": "device",
   "property": "device"
  },
  {
   "number": 3,
   "name": "lladdr",
   "property": "lladdr"
  },
  {
   "number": 4,
   "name": "state",
   "property": "state"
  },
  {
   "number": 5,
   "name": "flags",
   "property": "flags"
  }
 ],
 "grpc.GetIPTablesRequest": [
  {
   "number": 1,
   "name": "is_ipv6",
   "property": "isIpv6"
  }
 ],
 "grpc.SetIPTablesRequest": [
  {
   "number": 1,
   "name": "is_ipv6",
   "property": "isIpv6"
  },
  {
   "number": 2,
   "name": "data",
   "property": "data"
  }
 ],
 "grpc.GetMetricsRequest": [],
 "grpc.MemAgentMemcgConfig": [
  {
   "number": 1,
   "name": "disabled",
   "property": "disabled"
  },
  {
   "number": 2,
   "name": "swap",
   "property": "swap"
  },
  {
   "number": 3,
   "name": "swappiness_max",
   "property": "swappinessMax"
  },
  {
   "number": 4,
   "name": "period_secs",
   "property": "periodSecs"
  },
  {
   "number": 5,
   "name": "period_psi_percent_limit",
   "property": "periodPsiPercentLimit"
  },
  {
   "number": 6,
   "name": "eviction_psi_percent_limit",
   "property": "evictionPsiPercentLimit"
  },
  {
   "number": 7,
   "name": "eviction_run_aging_count_min",
   "property": "evictionRunAgingCountMin"
  }
 ],
 "grpc.MemAgentCompactConfig": [
  {
   "number": 1,
   "name": "disabled",
   "property": "disabled"
  },
  {
   "number": 2,
   "name": "period_secs",
   "property": "periodSecs"
  },
  {
   "number": 3,
   "name": "period_psi_percent_limit",
   "property": "periodPsiPercentLimit"
  },
  {
   "number": 4,
   "name": "compact_psi_percent_limit",
   "property": "compactPsiPercentLimit"
  },
  {
   "number": 5,
   "name": "compact_sec_max",
   "property": "compactSecMax"
  },
  {
   "number": 6,
   "name": "compact_order",
   "property": "compactOrder"
  },
  {
   "number": 7,
   "name": "compact_threshold",
   "property": "compactThreshold"
  },
  {
   "number": 8,
   "name": "compact_force_times",
   "property": "compactForceTimes"
  }
 ],
 "grpc.CreateSandboxRequest": [
  {
   "number": 1,
   "name": "hostname",
   "property": "hostname"
  },
  {
   "number": 2,
   "name": "dns",
   "property": "dns"
  },
  {
   "number": 3,
   "name": "storages",
   "property": "storages",
   "message": "grpc.Storage"
  },
  {
   "number": 4,
   "name": "sandbox_pidns",
   "property": "sandboxPidns"
  },
  {
   "number": 5,
   "name": "sandbox_id",
   "property": "sandboxId"
  },
  {
   "number": 6,
   "name": "guest_hook_path",
   "property": "guestHookPath"
  },
  {
   "number": 7,
   "name": "kernel_modules",
   "property": "kernelModules",
   "message": "grpc.KernelModule"
  }
 ],
 "grpc.KernelModule": [
  {
   "number": 1,
   "name": "name",
   "property": "name"
  },
  {
   "number": 2,
   "name": "parameters",
   "property": "parameters"
  }
 ],
 "grpc.DestroySandboxRequest": [],
 "grpc.OnlineCPUMemRequest": [
  {
   "number": 1,
   "name": "wait",
   "property": "wait"
  },
  {
   "number": 2,
   "name": "nb_cpus",
   "property": "nbCpus"
  },
  {
   "number": 3,
   "name": "cpu_only",
   "property": "cpuOnly"
  }
 ],
 "grpc.ReseedRandomDevRequest": [
  {
   "number": 2,
   "name": "data",
   "property": "data"
  }
 ],
 "grpc.GuestDetailsRequest": [
  {
   "number": 1,
   "name": "mem_block_size",
   "property": "memBlockSize"
  },
  {
   "number": 2,
   "name": "mem_hotplug_probe",
   "property": "memHotplugProbe"
  }
 ],
 "grpc.MemHotplugByProbeRequest": [
  {
   "number": 1,
   "name": "memHotplugProbeAddr",
   "property": "memHotplugProbeAddr",
   "isPacked": true
  }
 ],
 "grpc.SetGuestDateTimeRequest": [
  {
   "number": 1,
   "name": "Sec",
   "property": "Sec"
  },
  {
   "number": 2,
   "name": "Usec",
   "property": "Usec"
  }
 ],
 "grpc.CopyFileRequest": [
  {
   "number": 1,
   "name": "path",
   "property": "path"
  },
  {
   "number": 2,
   "name": "file_size",
   "property": "fileSize"
  },
  {
   "number": 3,
   "name": "file_mode",
   "property": "fileMode"
  },
  {
   "number": 4,
   "name": "dir_mode",
   "property": "dirMode"
  },
  {
   "number": 5,
   "name": "uid",
   "property": "uid"
  },
  {
   "number": 6,
   "name": "gid",
   "property": "gid"
  },
  {
   "number": 7,
   "name": "offset",
   "property": "offset"
  },
  {
   "number": 8,
   "name": "data",
   "property": "data"
  }
 ],
 "grpc.GetOOMEventRequest": [],
 "grpc.AddSwapRequest": [
  {
   "number": 1,
   "name": "PCIPath",
   "property": "PCIPath",
   "isPacked": true
  }
 ],
 "grpc.AddSwapPathRequest": [
  {
   "number": 1,
   "name": "path",
   "property": "path"
  }
 ],
 "grpc.VolumeStatsRequest": [
  {
   "number": 1,
   "name": "volume_guest_path",
   "property": "volumeGuestPath"
  }
 ],
 "grpc.ResizeVolumeRequest": [
  {
   "number": 1,
   "name": "volume_guest_path",
   "property": "volumeGuestPath"
  },
  {
   "number": 2,
   "name": "size",
   "property": "size"
  }
 ],
 "grpc.SetPolicyRequest": [
  {
   "number": 1,
   "name": "policy",
   "property": "policy"
  }
 ],
 "etcdserverpb.RangeRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "range_end",
   "property": "rangeEnd"
  },
  {
   "number": 3,
   "name": "limit",
   "property": "limit"
  },
  {
   "number": 4,
   "name": "revision",
   "property": "revision"
  }
 ],
 "etcdserverpb.TxnRequest": [
  {
   "number": 1,
   "name": "compare",
   "property": "compare",
   "message": "etcdserverpb.Compare"
  },
  {
   "number": 2,
   "name": "success",
   "property": "success",
   "message": "etcdserverpb.RequestOp"
  },
  {
   "number": 3,
   "name": "failure",
   "property": "failure",
   "message": "etcdserverpb.RequestOp"
  }
 ],
 "etcdserverpb.Compare": [
  {
   "number": 1,
   "name": "result",
   "property": "result"
  },
  {
   "number": 2,
   "name": "target",
   "property": "target"
  },
  {
   "number": 3,
   "name": "key",
   "property": "key"
  },
  {
   "number": 4,
   "name": "version",
   "property": "version",
   "oneof": "target_union"
  },
  {
   "number": 5,
   "name": "create_revision",
   "property": "createRevision",
   "oneof": "target_union"
  },
  {
   "number": 6,
   "name": "mod_revision",
   "property": "modRevision",
   "oneof": "target_union"
  },
  {
   "number": 7,
   "name": "value",
   "property": "value",
   "oneof": "target_union"
  },
  {
   "number": 8,
   "name": "lease",
   "property": "lease",
   "oneof": "target_union"
  }
 ],
 "etcdserverpb.RequestOp": [
  {
   "number": 1,
   "name": "request_range",
   "property": "requestRange",
   "message": "etcdserverpb.RangeRequest",
   "oneof": "request"
  },
  {
   "number": 2,
   "name": "request_put",
   "property": "requestPut",
   "message": "etcdserverpb.PutRequest",
   "oneof": "request"
  },
  {
   "number": 3,
   "name": "request_delete_range",
   "property": "requestDeleteRange",
   "message": "etcdserverpb.DeleteRangeRequest",
   "oneof": "request"
  }
 ],
 "etcdserverpb.PutRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "value",
   "property": "value"
  },
  {
   "number": 3,
   "name": "lease",
   "property": "lease"
  }
 ],
 "etcdserverpb.DeleteRangeRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "range_end",
   "property": "rangeEnd"
  }
 ],
 "etcdserverpb.WatchRequest": [
  {
   "number": 1,
   "name": "create_request",
   "property": "createRequest",
   "message": "etcdserverpb.WatchCreateRequest",
   "oneof": "request_union"
  },
  {
   "number": 3,
   "name": "progress_request",
   "property": "progressRequest",
   "message": "etcdserverpb.WatchProgressRequest",
   "oneof": "request_union"
  }
 ],
 "etcdserverpb.WatchCreateRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "range_end",
   "property": "rangeEnd"
  },
  {
   "number": 3,
   "name": "start_revision",
   "property": "startRevision"
  },
  {
   "number": 8,
   "name": "fragment",
   "property": "fragment"
  }
 ],
 "etcdserverpb.WatchProgressRequest": [],
 "etcdserverpb.LeaseGrantRequest": [
  {
   "number": 1,
   "name": "TTL",
   "property": "TTL"
  },
  {
   "number": 2,
   "name": "ID",
   "property": "ID"
  }
 ],
 "etcdserverpb.LeaseRevokeRequest": [
  {
   "number": 1,
   "name": "ID",
   "property": "ID"
  }
 ],
 "etcdserverpb.LeaseKeepAliveRequest": [
  {
   "number": 1,
   "name": "ID",
   "property": "ID"
  }
 ],
 "grpc.health.v1.HealthCheckRequest": [
  {
   "number": 1,
   "name": "service",
   "property": "service"
  }
 ],
 "grpc.health.v1.HealthListRequest": [],
 "grpc.reflection.v1.ServerReflectionRequest": [
  {
   "number": 1,
   "name": "host",
   "property": "host"
  },
  {
   "number": 3,
   "name": "file_by_filename",
   "property": "fileByFilename",
   "oneof": "message_request"
  },
  {
   "number": 4,
   "name": "file_containing_symbol",
   "property": "fileContainingSymbol",
   "oneof": "message_request"
  },
  {
   "number": 5,
   "name": "file_containing_extension",
   "property": "fileContainingExtension",
   "message": "grpc.reflection.v1.ExtensionRequest",
   "oneof": "message_request"
  },
  {
   "number": 6,
   "name": "all_extension_numbers_of_type",
   "property": "allExtensionNumbersOfType",
   "oneof": "message_request"
  },
  {
   "number": 7,
   "name": "list_services",
   "property": "listServices",
   "oneof": "message_request"
  }
 ],
 "grpc.reflection.v1.ExtensionRequest": [
  {
   "number": 1,
   "name": "containing_type",
   "property": "containingType"
  },
  {
   "number": 2,
   "name": "extension_number",
   "property": "extensionNumber"
  }
 ],
 "grpc.CheckRequest": [
  {
   "number": 1,
   "name": "service",
   "property": "service"
  }
 ],
 "microvm.agent.v1.GetVersionRequest": [],
 "microvm.agent.v1.GetCapabilitiesRequest": [],
 "microvm.agent.v1.GetSandboxRequest": [],
 "microvm.agent.v1.ListContainersRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "microvm.agent.v1.ListProcessesRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "microvm.agent.v1.ListMountsRequest": [],
 "microvm.agent.v1.ListDevicesRequest": [],
 "microvm.agent.v1.GetNetworkRequest": [],
 "microvm.agent.v1.ListCallsRequest": [],
 "microvm.agent.v1.ListExitsRequest": [
  {
   "number": 1,
   "name": "after_sequence",
   "property": "afterSequence"
  },
  {
   "number": 2,
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "microvm.agent.v1.AcknowledgeExitsRequest": [
  {
   "number": 1,
   "name": "up_to_sequence",
   "property": "upToSequence"
  }
 ],
 "microvm.agent.v1.GetEventsRequest": [
  {
   "number": 1,
   "name": "after_sequence",
   "property": "afterSequence"
  },
  {
   "number": 2,
   "name": "timeout_ms",
   "property": "timeoutMs"
  },
  {
   "number": 3,
   "name": "limit",
   "property": "limit"
  }
 ],
 "microvm.agent.v1.StreamEventsRequest": [
  {
   "number": 1,
   "name": "after_sequence",
   "property": "afterSequence"
  }
 ],
 "microvm.agent.v1.GetStacksRequest": [],
 "microvm.agent.v1.ReadProfileRequest": [
  {
   "number": 1,
   "name": "kind",
   "property": "kind"
  },
  {
   "number": 2,
   "name": "duration_ms",
   "property": "durationMs"
  },
  {
   "number": 3,
   "name": "id",
   "property": "id"
  },
  {
   "number": 4,
   "name": "offset",
   "property": "offset"
  },
  {
   "number": 5,
   "name": "discard",
   "property": "discard"
  }
 ],
 "microvm.agent.v1.GetLoopHistogramRequest": [
  {
   "number": 1,
   "name": "duration_ms",
   "property": "durationMs"
  }
 ],
 "microvm.agent.v1.ReadOutputRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "exec_id",
   "property": "execId"
  },
  {
   "number": 3,
   "name": "stream",
   "property": "stream"
  },
  {
   "number": 4,
   "name": "offset",
   "property": "offset"
  },
  {
   "number": 5,
   "name": "len",
   "property": "len"
  }
 ],
 "microvm.agent.v1.SignalOnHangupRequest": [
  {
   "number": 1,
   "name": "container_id",
   "property": "containerId"
  },
  {
   "number": 2,
   "name": "exec_id",
   "property": "execId"
  },
  {
   "number": 3,
   "name": "signal",
   "property": "signal"
  }
 ],
 "microvm.agent.v1.DetachRequest": [
  {
   "number": 1,
   "name": "timeout_ms",
   "property": "timeoutMs"
  }
 ],
 "microvm.agent.v1.AttachRequest": [
  {
   "number": 1,
   "name": "streams",
   "property": "streams",
   "message": "microvm.agent.v1.MovedStream"
  }
 ],
 "microvm.agent.v1.MovedStream": [
  {
   "number": 1,
   "name": "old_port",
   "property": "oldPort"
  },
  {
   "number": 2,
   "name": "new_port",
   "property": "newPort"
  }
 ],
 "microvm.agent.v1.ListStreamsRequest": [],
 "microvm.agent.v1.ResumedRequest": [
  {
   "number": 1,
   "name": "generation",
   "property": "generation"
  },
  {
   "number": 2,
   "name": "seed",
   "property": "seed"
  },
  {
   "number": 3,
   "name": "time_ns",
   "property": "timeNs"
  },
  {
   "number": 4,
   "name": "identity",
   "property": "identity",
   "message": "microvm.agent.v1.Identity"
  }
 ],
 "microvm.agent.v1.Identity": [
  {
   "number": 1,
   "name": "hostname",
   "property": "hostname"
  },
  {
   "number": 2,
   "name": "hosts",
   "property": "hosts"
  },
  {
   "number": 3,
   "name": "dns",
   "property": "dns"
  },
  {
   "number": 4,
   "name": "interfaces",
   "property": "interfaces",
   "message": "types.Interface"
  },
  {
   "number": 5,
   "name": "routes",
   "property": "routes",
   "message": "types.Route"
  },
  {
   "number": 6,
   "name": "neighbors",
   "property": "neighbors",
   "message": "types.ARPNeighbor"
  },
  {
   "number": 7,
   "name": "hold_containers",
   "property": "holdContainers"
  }
 ],
 "microvm.agent.v1.GetResumeRequest": [
  {
   "number": 1,
   "name": "number",
   "property": "number"
  },
  {
   "number": 2,
   "name": "timeout_ms",
   "property": "timeoutMs"
  }
 ],
 "microvm.agent.v1.QuiesceRequest": [
  {
   "number": 1,
   "name": "timeout_ms",
   "property": "timeoutMs"
  }
 ],
 "microvm.agent.v1.ThawRequest": [],
 "microvm.agent.v1.RenameRequest": [
  {
   "number": 1,
   "name": "sandbox_id",
   "property": "sandboxId"
  },
  {
   "number": 2,
   "name": "containers",
   "property": "containers",
   "message": "microvm.agent.v1.RenamedContainer"
  },
  {
   "number": 3,
   "name": "hostname",
   "property": "hostname"
  },
  {
   "number": 4,
   "name": "dns",
   "property": "dns"
  },
  {
   "number": 5,
   "name": "hosts",
   "property": "hosts"
  }
 ],
 "microvm.agent.v1.RenamedContainer": [
  {
   "number": 1,
   "name": "old_id",
   "property": "oldId"
  },
  {
   "number": 2,
   "name": "new_id",
   "property": "newId"
  },
  {
   "number": 3,
   "name": "hostname",
   "property": "hostname"
  },
  {
   "number": 4,
   "name": "hosts",
   "property": "hosts"
  }
 ],
 "metropolis.proto.vm.EnsureMigrationTargetRequest": [
  {
   "number": 1,
   "name": "us",
   "property": "us",
   "message": "metropolis.proto.vm.HypervisorID"
  },
  {
   "number": 100,
   "name": "to_host",
   "property": "toHost"
  }
 ],
 "metropolis.proto.vm.HypervisorID": [
  {
   "number": 1,
   "name": "vm_name",
   "property": "vmName"
  },
  {
   "number": 2,
   "name": "namespace",
   "property": "namespace"
  },
  {
   "number": 3,
   "name": "pod_name",
   "property": "podName"
  },
  {
   "number": 4,
   "name": "run_id",
   "property": "runId"
  }
 ],
 "metropolis.proto.vm.MigrationSwitchoverRequest": [
  {
   "number": 1,
   "name": "us",
   "property": "us",
   "message": "metropolis.proto.vm.HypervisorID"
  },
  {
   "number": 2,
   "name": "them",
   "property": "them",
   "message": "metropolis.proto.vm.HypervisorID"
  },
  {
   "number": 100,
   "name": "volumes",
   "property": "volumes",
   "message": "metropolis.proto.vm.MigrationSwitchoverRequest.VolumePlace"
  }
 ],
 "metropolis.proto.vm.MigrationSwitchoverRequest.VolumePlace": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "host",
   "property": "host"
  },
  {
   "number": 3,
   "name": "path",
   "property": "path"
  },
  {
   "number": 4,
   "name": "epoch",
   "property": "epoch"
  }
 ],
 "metropolis.proto.vm.RunLeaseRequest": [
  {
   "number": 1,
   "name": "us",
   "property": "us",
   "message": "metropolis.proto.vm.HypervisorID"
  }
 ],
 "metropolis.proto.vm.ResetRequest": [],
 "metropolis.proto.vm.ConsoleIO": [
  {
   "number": 1,
   "name": "data",
   "property": "data"
  }
 ],
 "metropolis.proto.vm.StartMigrationRequest": [
  {
   "number": 1,
   "name": "supported_migration_protocol",
   "property": "supportedMigrationProtocol",
   "message": "metropolis.proto.vm.MigrationProtocol"
  },
  {
   "number": 2,
   "name": "us",
   "property": "us",
   "message": "metropolis.proto.vm.HypervisorID"
  },
  {
   "number": 100,
   "name": "dry_run",
   "property": "dryRun"
  }
 ],
 "metropolis.proto.vm.MigrationProtocol": [
  {
   "number": 1,
   "name": "qmeu_block",
   "property": "qmeuBlock",
   "message": "metropolis.proto.vm.MigrationProtocol.Qemu",
   "oneof": "kind"
  }
 ],
 "metropolis.proto.vm.MigrationProtocol.Qemu": [
  {
   "number": 1,
   "name": "constraint_with_blockmigration",
   "property": "constraintWithBlockmigration"
  },
  {
   "number": 2,
   "name": "negotiated_endpoint",
   "property": "negotiatedEndpoint"
  },
  {
   "number": 100,
   "name": "constraint_nbd",
   "property": "constraintNbd",
   "message": "metropolis.proto.vm.MigrationProtocol.Qemu.Disk"
  },
  {
   "number": 101,
   "name": "negotiated_nbd_endpoint",
   "property": "negotiatedNbdEndpoint"
  },
  {
   "number": 102,
   "name": "negotiated_export",
   "property": "negotiatedExport",
   "message": "metropolis.proto.vm.MigrationProtocol.Qemu.Export"
  },
  {
   "number": 103,
   "name": "constraint_tls",
   "property": "constraintTls"
  },
  {
   "number": 104,
   "name": "constraint_handover",
   "property": "constraintHandover"
  }
 ],
 "metropolis.proto.vm.MigrationProtocol.Qemu.Disk": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "size_bytes",
   "property": "sizeBytes"
  },
  {
   "number": 3,
   "name": "path",
   "property": "path"
  }
 ],
 "metropolis.proto.vm.MigrationProtocol.Qemu.Export": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "name",
   "property": "name"
  }
 ],
 "microvm.instance.v1.EnsureInstanceRequest": [
  {
   "number": 1,
   "name": "properties",
   "property": "properties",
   "message": "microvm.instance.v1.Properties"
  },
  {
   "number": 2,
   "name": "specification",
   "property": "specification",
   "message": "microvm.instance.v1.Specification",
   "oneof": "init"
  },
  {
   "number": 3,
   "name": "migration_target",
   "property": "migrationTarget",
   "message": "microvm.instance.v1.MigrationTarget",
   "oneof": "init"
  },
  {
   "number": 4,
   "name": "document",
   "property": "document",
   "oneof": "init"
  },
  {
   "number": 5,
   "name": "saved",
   "property": "saved",
   "message": "microvm.instance.v1.SavedInit",
   "oneof": "init"
  }
 ],
 "microvm.instance.v1.Properties": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "tenant",
   "property": "tenant"
  },
  {
   "number": 3,
   "name": "labels",
   "property": "labels",
   "isMap": true
  },
  {
   "number": 4,
   "name": "lease",
   "property": "lease",
   "message": "microvm.instance.v1.Lease"
  }
 ],
 "microvm.instance.v1.Lease": [
  {
   "number": 1,
   "name": "mode",
   "property": "mode"
  },
  {
   "number": 2,
   "name": "ttl_ms",
   "property": "ttlMs"
  }
 ],
 "microvm.instance.v1.Specification": [
  {
   "number": 1,
   "name": "board",
   "property": "board",
   "message": "microvm.instance.v1.Board"
  },
  {
   "number": 2,
   "name": "devices",
   "property": "devices",
   "message": "microvm.instance.v1.Device",
   "isMap": true
  },
  {
   "number": 3,
   "name": "backends",
   "property": "backends",
   "message": "microvm.instance.v1.Backend",
   "isMap": true
  },
  {
   "number": 4,
   "name": "reboot_limit",
   "property": "rebootLimit",
   "message": "microvm.instance.v1.RebootLimit"
  },
  {
   "number": 5,
   "name": "limits",
   "property": "limits",
   "message": "microvm.instance.v1.Limits"
  }
 ],
 "microvm.instance.v1.Board": [
  {
   "number": 1,
   "name": "machine",
   "property": "machine"
  },
  {
   "number": 2,
   "name": "memory_mib",
   "property": "memoryMib"
  },
  {
   "number": 3,
   "name": "cpus",
   "property": "cpus"
  },
  {
   "number": 4,
   "name": "room",
   "property": "room",
   "message": "microvm.instance.v1.Room"
  },
  {
   "number": 5,
   "name": "kernel",
   "property": "kernel"
  },
  {
   "number": 6,
   "name": "initrd",
   "property": "initrd"
  },
  {
   "number": 7,
   "name": "command_line",
   "property": "commandLine"
  },
  {
   "number": 8,
   "name": "vmlinux",
   "property": "vmlinux"
  },
  {
   "number": 9,
   "name": "firmware",
   "property": "firmware"
  },
  {
   "number": 10,
   "name": "generation_id",
   "property": "generationId"
  }
 ],
 "microvm.instance.v1.Room": [
  {
   "number": 1,
   "name": "cpus",
   "property": "cpus"
  },
  {
   "number": 2,
   "name": "memory_mib",
   "property": "memoryMib"
  },
  {
   "number": 3,
   "name": "memory_slots",
   "property": "memorySlots"
  }
 ],
 "microvm.instance.v1.Device": [
  {
   "number": 1,
   "name": "backend",
   "property": "backend"
  },
  {
   "number": 2,
   "name": "slot",
   "property": "slot"
  },
  {
   "number": 3,
   "name": "port",
   "property": "port"
  },
  {
   "number": 4,
   "name": "disk",
   "property": "disk",
   "message": "microvm.instance.v1.Disk",
   "oneof": "kind"
  },
  {
   "number": 5,
   "name": "persistent_memory",
   "property": "persistentMemory",
   "message": "microvm.instance.v1.PersistentMemory",
   "oneof": "kind"
  },
  {
   "number": 6,
   "name": "nic",
   "property": "nic",
   "message": "microvm.instance.v1.Nic",
   "oneof": "kind"
  },
  {
   "number": 7,
   "name": "vsock",
   "property": "vsock",
   "message": "microvm.instance.v1.Vsock",
   "oneof": "kind"
  },
  {
   "number": 8,
   "name": "serial",
   "property": "serial",
   "message": "microvm.instance.v1.Serial",
   "oneof": "kind"
  },
  {
   "number": 9,
   "name": "virtio_console",
   "property": "virtioConsole",
   "message": "microvm.instance.v1.VirtioConsole",
   "oneof": "kind"
  },
  {
   "number": 10,
   "name": "firmware_item",
   "property": "firmwareItem",
   "message": "microvm.instance.v1.FirmwareItem",
   "oneof": "kind"
  },
  {
   "number": 11,
   "name": "root_port",
   "property": "rootPort",
   "message": "microvm.instance.v1.RootPort",
   "oneof": "kind"
  },
  {
   "number": 12,
   "name": "pci_bridge",
   "property": "pciBridge",
   "message": "microvm.instance.v1.PciBridge",
   "oneof": "kind"
  },
  {
   "number": 13,
   "name": "share",
   "property": "share",
   "message": "microvm.instance.v1.Share",
   "oneof": "kind"
  }
 ],
 "microvm.instance.v1.Disk": [
  {
   "number": 1,
   "name": "serial",
   "property": "serial"
  },
  {
   "number": 2,
   "name": "nvme",
   "property": "nvme"
  },
  {
   "number": 3,
   "name": "no_snapshot",
   "property": "noSnapshot"
  }
 ],
 "microvm.instance.v1.PersistentMemory": [
  {
   "number": 1,
   "name": "size_bytes",
   "property": "sizeBytes"
  }
 ],
 "microvm.instance.v1.Nic": [
  {
   "number": 1,
   "name": "mac",
   "property": "mac"
  },
  {
   "number": 2,
   "name": "replaceable",
   "property": "replaceable"
  },
  {
   "number": 3,
   "name": "filters",
   "property": "filters"
  },
  {
   "number": 4,
   "name": "addresses",
   "property": "addresses"
  }
 ],
 "microvm.instance.v1.Vsock": [
  {
   "number": 1,
   "name": "cid",
   "property": "cid"
  }
 ],
 "microvm.instance.v1.Serial": [],
 "microvm.instance.v1.VirtioConsole": [],
 "microvm.instance.v1.FirmwareItem": [
  {
   "number": 1,
   "name": "name",
   "property": "name"
  }
 ],
 "microvm.instance.v1.RootPort": [
  {
   "number": 1,
   "name": "function",
   "property": "function"
  }
 ],
 "microvm.instance.v1.PciBridge": [],
 "microvm.instance.v1.Share": [
  {
   "number": 1,
   "name": "tag",
   "property": "tag"
  }
 ],
 "microvm.instance.v1.Backend": [
  {
   "number": 1,
   "name": "file",
   "property": "file",
   "message": "microvm.instance.v1.File",
   "oneof": "kind"
  },
  {
   "number": 2,
   "name": "passt",
   "property": "passt",
   "message": "microvm.instance.v1.Passt",
   "oneof": "kind"
  },
  {
   "number": 3,
   "name": "tap",
   "property": "tap",
   "message": "microvm.instance.v1.Tap",
   "oneof": "kind"
  },
  {
   "number": 4,
   "name": "vhost_vsock",
   "property": "vhostVsock",
   "message": "microvm.instance.v1.VhostVsock",
   "oneof": "kind"
  },
  {
   "number": 5,
   "name": "vsock_daemon",
   "property": "vsockDaemon",
   "message": "microvm.instance.v1.VsockDaemon",
   "oneof": "kind"
  },
  {
   "number": 6,
   "name": "vhost_user",
   "property": "vhostUser",
   "message": "microvm.instance.v1.VhostUser",
   "oneof": "kind"
  },
  {
   "number": 7,
   "name": "virtiofsd",
   "property": "virtiofsd",
   "message": "microvm.instance.v1.Virtiofsd",
   "oneof": "kind"
  },
  {
   "number": 8,
   "name": "console",
   "property": "console",
   "message": "microvm.instance.v1.Console",
   "oneof": "kind"
  },
  {
   "number": 9,
   "name": "content",
   "property": "content",
   "message": "microvm.instance.v1.Content",
   "oneof": "kind"
  },
  {
   "number": 10,
   "name": "folder",
   "property": "folder",
   "message": "microvm.instance.v1.Folder",
   "oneof": "kind"
  },
  {
   "number": 11,
   "name": "user_network",
   "property": "userNetwork",
   "message": "microvm.instance.v1.UserNetwork",
   "oneof": "kind"
  }
 ],
 "microvm.instance.v1.File": [
  {
   "number": 1,
   "name": "path",
   "property": "path"
  },
  {
   "number": 2,
   "name": "access",
   "property": "access"
  },
  {
   "number": 4,
   "name": "encryption",
   "property": "encryption",
   "message": "microvm.instance.v1.Encryption"
  },
  {
   "number": 5,
   "name": "host",
   "property": "host"
  }
 ],
 "microvm.instance.v1.Encryption": [
  {
   "number": 1,
   "name": "secret",
   "property": "secret"
  }
 ],
 "microvm.instance.v1.Passt": [],
 "microvm.instance.v1.Tap": [
  {
   "number": 1,
   "name": "interface_name",
   "property": "interfaceName"
  },
  {
   "number": 2,
   "name": "bridge",
   "property": "bridge"
  }
 ],
 "microvm.instance.v1.VhostVsock": [],
 "microvm.instance.v1.VsockDaemon": [],
 "microvm.instance.v1.VhostUser": [
  {
   "number": 1,
   "name": "socket",
   "property": "socket"
  }
 ],
 "microvm.instance.v1.Virtiofsd": [
  {
   "number": 1,
   "name": "path",
   "property": "path"
  }
 ],
 "microvm.instance.v1.Console": [],
 "microvm.instance.v1.Content": [
  {
   "number": 1,
   "name": "path",
   "property": "path"
  }
 ],
 "microvm.instance.v1.Folder": [
  {
   "number": 1,
   "name": "path",
   "property": "path"
  }
 ],
 "microvm.instance.v1.UserNetwork": [
  {
   "number": 1,
   "name": "forwards",
   "property": "forwards",
   "message": "microvm.instance.v1.Forward"
  },
  {
   "number": 2,
   "name": "subnets",
   "property": "subnets",
   "message": "microvm.instance.v1.Subnet"
  }
 ],
 "microvm.instance.v1.Forward": [
  {
   "number": 1,
   "name": "host_port",
   "property": "hostPort"
  },
  {
   "number": 2,
   "name": "guest_port",
   "property": "guestPort"
  }
 ],
 "microvm.instance.v1.Subnet": [
  {
   "number": 1,
   "name": "network",
   "property": "network"
  },
  {
   "number": 2,
   "name": "prefix_length",
   "property": "prefixLength"
  },
  {
   "number": 3,
   "name": "host",
   "property": "host"
  },
  {
   "number": 4,
   "name": "guest",
   "property": "guest"
  },
  {
   "number": 5,
   "name": "name_server",
   "property": "nameServer"
  }
 ],
 "microvm.instance.v1.RebootLimit": [
  {
   "number": 1,
   "name": "count",
   "property": "count"
  },
  {
   "number": 2,
   "name": "seconds",
   "property": "seconds"
  }
 ],
 "microvm.instance.v1.Limits": [
  {
   "number": 1,
   "name": "memory_mib",
   "property": "memoryMib"
  },
  {
   "number": 2,
   "name": "cpu_milli",
   "property": "cpuMilli"
  },
  {
   "number": 3,
   "name": "tasks",
   "property": "tasks"
  }
 ],
 "microvm.instance.v1.MigrationTarget": [
  {
   "number": 1,
   "name": "source",
   "property": "source"
  },
  {
   "number": 2,
   "name": "replace_components",
   "property": "replaceComponents",
   "message": "microvm.instance.v1.Backend",
   "isMap": true
  }
 ],
 "microvm.instance.v1.SavedInit": [
  {
   "number": 1,
   "name": "name",
   "property": "name"
  },
  {
   "number": 2,
   "name": "folder",
   "property": "folder"
  },
  {
   "number": 3,
   "name": "replace_components",
   "property": "replaceComponents",
   "message": "microvm.instance.v1.Backend",
   "isMap": true
  },
  {
   "number": 4,
   "name": "identity",
   "property": "identity",
   "message": "microvm.agent.v1.Identity"
  }
 ],
 "microvm.instance.v1.ExpandRequest": [
  {
   "number": 1,
   "name": "document",
   "property": "document"
  }
 ],
 "microvm.instance.v1.GetInstanceRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  }
 ],
 "microvm.instance.v1.ListInstancesRequest": [],
 "microvm.instance.v1.WatchInstancesRequest": [
  {
   "number": 1,
   "name": "after",
   "property": "after"
  },
  {
   "number": 2,
   "name": "once",
   "property": "once"
  }
 ],
 "microvm.instance.v1.ChangeStateRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "change",
   "property": "change"
  },
  {
   "number": 3,
   "name": "grace_ms",
   "property": "graceMs"
  }
 ],
 "microvm.instance.v1.ReplaceBackendRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "backend_key",
   "property": "backendKey"
  },
  {
   "number": 3,
   "name": "backend",
   "property": "backend",
   "message": "microvm.instance.v1.Backend"
  },
  {
   "number": 4,
   "name": "source",
   "property": "source"
  }
 ],
 "microvm.instance.v1.PlugRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "device_key",
   "property": "deviceKey"
  },
  {
   "number": 3,
   "name": "device",
   "property": "device",
   "message": "microvm.instance.v1.Device"
  },
  {
   "number": 4,
   "name": "backend",
   "property": "backend",
   "message": "microvm.instance.v1.Backend"
  },
  {
   "number": 5,
   "name": "features",
   "property": "features"
  }
 ],
 "microvm.instance.v1.UnplugRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "device_key",
   "property": "deviceKey"
  },
  {
   "number": 3,
   "name": "grace_ms",
   "property": "graceMs"
  }
 ],
 "microvm.instance.v1.SnapshotRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "name",
   "property": "name"
  },
  {
   "number": 3,
   "name": "disks",
   "property": "disks"
  },
  {
   "number": 4,
   "name": "quiesce",
   "property": "quiesce"
  },
  {
   "number": 5,
   "name": "memory",
   "property": "memory"
  },
  {
   "number": 6,
   "name": "without_agent",
   "property": "withoutAgent"
  }
 ],
 "microvm.instance.v1.ListSnapshotsRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  }
 ],
 "microvm.instance.v1.RevertRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "name",
   "property": "name"
  }
 ],
 "microvm.instance.v1.RemoveSnapshotRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "name",
   "property": "name"
  },
  {
   "number": 3,
   "name": "all",
   "property": "all"
  }
 ],
 "microvm.instance.v1.RemoveRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  }
 ],
 "microvm.instance.v1.SuspendInstanceRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "name",
   "property": "name"
  },
  {
   "number": 3,
   "name": "folder",
   "property": "folder"
  },
  {
   "number": 4,
   "name": "quiesce",
   "property": "quiesce"
  },
  {
   "number": 5,
   "name": "without_agent",
   "property": "withoutAgent"
  }
 ],
 "microvm.instance.v1.ListSavedRequest": [],
 "microvm.instance.v1.DeleteSavedRequest": [
  {
   "number": 1,
   "name": "name",
   "property": "name"
  }
 ],
 "microvm.instance.v1.CloneInstanceRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key",
   "oneof": "from"
  },
  {
   "number": 2,
   "name": "saved",
   "property": "saved",
   "oneof": "from"
  },
  {
   "number": 3,
   "name": "count",
   "property": "count"
  },
  {
   "number": 4,
   "name": "name",
   "property": "name"
  },
  {
   "number": 5,
   "name": "identity",
   "property": "identity",
   "message": "microvm.agent.v1.Identity"
  },
  {
   "number": 6,
   "name": "replace_components",
   "property": "replaceComponents",
   "message": "microvm.instance.v1.Backend",
   "isMap": true
  },
  {
   "number": 7,
   "name": "without_agent",
   "property": "withoutAgent"
  }
 ],
 "microvm.instance.v1.EnsureTemplateRequest": [
  {
   "number": 1,
   "name": "specification",
   "property": "specification",
   "message": "microvm.instance.v1.Specification"
  }
 ],
 "microvm.instance.v1.ListTemplatesRequest": [],
 "microvm.instance.v1.RemoveTemplateRequest": [
  {
   "number": 1,
   "name": "name",
   "property": "name"
  }
 ],
 "microvm.instance.v1.MigrateInstanceRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "to_host",
   "property": "toHost"
  },
  {
   "number": 3,
   "name": "dry_run",
   "property": "dryRun"
  },
  {
   "number": 4,
   "name": "quiesce",
   "property": "quiesce"
  },
  {
   "number": 5,
   "name": "without_agent",
   "property": "withoutAgent"
  }
 ],
 "microvm.instance.v1.ListHostsRequest": [],
 "microvm.instance.v1.DrainHostRequest": [
  {
   "number": 1,
   "name": "draining",
   "property": "draining"
  }
 ],
 "microvm.instance.v1.AllocatePortRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "container",
   "property": "container"
  },
  {
   "number": 3,
   "name": "exec",
   "property": "exec"
  },
  {
   "number": 4,
   "name": "stream",
   "property": "stream"
  }
 ],
 "microvm.instance.v1.AttachRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "port",
   "property": "port"
  },
  {
   "number": 3,
   "name": "offset",
   "property": "offset"
  }
 ],
 "microvm.instance.v1.ListStreamsRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  }
 ],
 "microvm.instance.v1.ConnectAgentRequest": [
  {
   "number": 1,
   "name": "key",
   "property": "key"
  },
  {
   "number": 2,
   "name": "data",
   "property": "data"
  },
  {
   "number": 3,
   "name": "hosts",
   "property": "hosts"
  },
  {
   "number": 4,
   "name": "tenant",
   "property": "tenant"
  }
 ],
 "microvm.instance.v1.ListCallsRequest": [],
 "microvm.instance.v1.GetMetricsRequest": [],
 "microvm.controller.v1.RegisterHostRequest": [
  {
   "number": 1,
   "name": "host",
   "property": "host",
   "message": "microvm.controller.v1.Host"
  }
 ],
 "microvm.controller.v1.Host": [
  {
   "number": 1,
   "name": "id",
   "property": "id"
  },
  {
   "number": 2,
   "name": "endpoint",
   "property": "endpoint"
  },
  {
   "number": 3,
   "name": "qemu_version",
   "property": "qemuVersion"
  },
  {
   "number": 4,
   "name": "cpu",
   "property": "cpu"
  },
  {
   "number": 5,
   "name": "cpu_models",
   "property": "cpuModels"
  },
  {
   "number": 6,
   "name": "memory_mib",
   "property": "memoryMib"
  },
  {
   "number": 7,
   "name": "networks",
   "property": "networks"
  },
  {
   "number": 8,
   "name": "shared_folders",
   "property": "sharedFolders"
  },
  {
   "number": 9,
   "name": "draining",
   "property": "draining"
  },
  {
   "number": 10,
   "name": "only_vm",
   "property": "onlyVm"
  }
 ],
 "microvm.controller.v1.ListHostsRequest": [],
 "microvm.controller.v1.EnsureVmRequest": [
  {
   "number": 1,
   "name": "us",
   "property": "us",
   "message": "metropolis.proto.vm.HypervisorID"
  },
  {
   "number": 2,
   "name": "settings",
   "property": "settings",
   "message": "microvm.controller.v1.VmSettings"
  },
  {
   "number": 3,
   "name": "volumes",
   "property": "volumes",
   "message": "metropolis.proto.vm.MigrationSwitchoverRequest.VolumePlace"
  }
 ],
 "microvm.controller.v1.VmSettings": [
  {
   "number": 1,
   "name": "specification",
   "property": "specification",
   "message": "microvm.instance.v1.Specification"
  },
  {
   "number": 2,
   "name": "lease_mode",
   "property": "leaseMode"
  },
  {
   "number": 3,
   "name": "lease_ttl_ms",
   "property": "leaseTtlMs"
  },
  {
   "number": 4,
   "name": "needs",
   "property": "needs",
   "message": "microvm.controller.v1.Needs"
  }
 ],
 "microvm.controller.v1.Needs": [
  {
   "number": 1,
   "name": "cpu_model",
   "property": "cpuModel"
  },
  {
   "number": 2,
   "name": "qemu_version",
   "property": "qemuVersion"
  },
  {
   "number": 3,
   "name": "memory_mib",
   "property": "memoryMib"
  },
  {
   "number": 4,
   "name": "networks",
   "property": "networks"
  },
  {
   "number": 5,
   "name": "obstacles",
   "property": "obstacles"
  },
  {
   "number": 6,
   "name": "shared_paths",
   "property": "sharedPaths"
  }
 ],
 "microvm.controller.v1.ForecastTargetRequest": [
  {
   "number": 1,
   "name": "vm",
   "property": "vm",
   "message": "microvm.controller.v1.EnsureVmRequest"
  },
  {
   "number": 2,
   "name": "to_host",
   "property": "toHost"
  }
 ],
 "microvm.controller.v1.GetVmRequest": [
  {
   "number": 1,
   "name": "namespace",
   "property": "namespace"
  },
  {
   "number": 2,
   "name": "name",
   "property": "name"
  }
 ],
 "microvm.controller.v1.ListVmsRequest": [
  {
   "number": 1,
   "name": "namespace",
   "property": "namespace"
  },
  {
   "number": 2,
   "name": "page_size",
   "property": "pageSize"
  },
  {
   "number": 3,
   "name": "page_token",
   "property": "pageToken"
  }
 ],
 "microvm.controller.v1.RemoveVmRequest": [
  {
   "number": 1,
   "name": "us",
   "property": "us",
   "message": "metropolis.proto.vm.HypervisorID"
  }
 ],
 "microvm.controller.v1.RenewLeaseRequest": [
  {
   "number": 1,
   "name": "us",
   "property": "us",
   "message": "metropolis.proto.vm.HypervisorID"
  },
  {
   "number": 2,
   "name": "nonce",
   "property": "nonce"
  }
 ],
 "microvm.instance.v1.MoveRequest": [
  {
   "number": 1,
   "name": "plan",
   "property": "plan",
   "message": "microvm.instance.v1.MovePlan",
   "oneof": "part"
  },
  {
   "number": 2,
   "name": "content",
   "property": "content",
   "message": "microvm.instance.v1.MoveContent",
   "oneof": "part"
  },
  {
   "number": 3,
   "name": "piece",
   "property": "piece",
   "oneof": "part"
  },
  {
   "number": 4,
   "name": "end",
   "property": "end",
   "message": "microvm.instance.v1.MoveEnd",
   "oneof": "part"
  }
 ],
 "microvm.instance.v1.MovePlan": [
  {
   "number": 1,
   "name": "version",
   "property": "version"
  },
  {
   "number": 2,
   "name": "us",
   "property": "us",
   "message": "metropolis.proto.vm.HypervisorID"
  },
  {
   "number": 3,
   "name": "qemu",
   "property": "qemu"
  },
  {
   "number": 4,
   "name": "acceleration",
   "property": "acceleration"
  },
  {
   "number": 5,
   "name": "cpu",
   "property": "cpu"
  },
  {
   "number": 6,
   "name": "files",
   "property": "files",
   "message": "microvm.instance.v1.MoveFile"
  },
  {
   "number": 7,
   "name": "generation_id",
   "property": "generationId"
  }
 ],
 "microvm.instance.v1.MoveFile": [
  {
   "number": 1,
   "name": "field",
   "property": "field"
  },
  {
   "number": 2,
   "name": "backend",
   "property": "backend"
  },
  {
   "number": 3,
   "name": "path",
   "property": "path"
  },
  {
   "number": 4,
   "name": "size_bytes",
   "property": "sizeBytes"
  },
  {
   "number": 5,
   "name": "digest",
   "property": "digest"
  }
 ],
 "microvm.instance.v1.MoveContent": [
  {
   "number": 1,
   "name": "size_bytes",
   "property": "sizeBytes"
  },
  {
   "number": 2,
   "name": "ring",
   "property": "ring",
   "message": "microvm.instance.v1.MoveRing"
  }
 ],
 "microvm.instance.v1.MoveRing": [
  {
   "number": 1,
   "name": "number",
   "property": "number"
  },
  {
   "number": 2,
   "name": "first",
   "property": "first"
  },
  {
   "number": 3,
   "name": "closed",
   "property": "closed"
  }
 ],
 "microvm.instance.v1.MoveEnd": [
  {
   "number": 1,
   "name": "running",
   "property": "running"
  },
  {
   "number": 2,
   "name": "has_agent",
   "property": "hasAgent"
  },
  {
   "number": 3,
   "name": "unplugged",
   "property": "unplugged"
  },
  {
   "number": 4,
   "name": "streams",
   "property": "streams",
   "message": "microvm.instance.v1.MoveStream"
  },
  {
   "number": 5,
   "name": "stopped_ms",
   "property": "stoppedMs"
  },
  {
   "number": 6,
   "name": "detached_ms",
   "property": "detachedMs"
  },
  {
   "number": 7,
   "name": "id",
   "property": "id"
  },
  {
   "number": 8,
   "name": "boot_id",
   "property": "bootId"
  }
 ],
 "microvm.instance.v1.MoveStream": [
  {
   "number": 1,
   "name": "port",
   "property": "port"
  },
  {
   "number": 2,
   "name": "container",
   "property": "container"
  },
  {
   "number": 3,
   "name": "exec",
   "property": "exec"
  },
  {
   "number": 4,
   "name": "stream",
   "property": "stream"
  },
  {
   "number": 5,
   "name": "live",
   "property": "live"
  }
 ],
 "microvm.instance.v1.FenceVolumeRequest": [
  {
   "number": 1,
   "name": "us",
   "property": "us",
   "message": "metropolis.proto.vm.HypervisorID"
  },
  {
   "number": 2,
   "name": "key",
   "property": "key"
  },
  {
   "number": 3,
   "name": "look_only",
   "property": "lookOnly"
  }
 ],
 "microvm.instance.v1.SetSecretRequest": [
  {
   "number": 1,
   "name": "uuid",
   "property": "uuid"
  },
  {
   "number": 2,
   "name": "value",
   "property": "value"
  },
  {
   "number": 3,
   "name": "tenant",
   "property": "tenant"
  }
 ],
 "microvm.instance.v1.ListSecretsRequest": [],
 "microvm.instance.v1.RemoveSecretRequest": [
  {
   "number": 1,
   "name": "uuid",
   "property": "uuid"
  },
  {
   "number": 2,
   "name": "tenant",
   "property": "tenant"
  }
 ]
}
  return fields
}
