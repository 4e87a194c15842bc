// Code generated from proto/. DO NOT EDIT.
export interface MessageField {
  /** As the proto names it. */
  readonly name: string
  /** As the generated message names it. */
  readonly property: string
  /** Full name of the message that the field holds. */
  readonly message?: string
  readonly isMap?: true
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
  "grpc.health.v1.Health/Check": "grpc.health.v1.HealthCheckRequest",
  "grpc.health.v1.Health/List": "grpc.health.v1.HealthListRequest",
  "grpc.health.v1.Health/Watch": "grpc.health.v1.HealthCheckRequest",
  "grpc.reflection.v1.ServerReflection/ServerReflectionInfo": "grpc.reflection.v1.ServerReflectionRequest",
  "grpc.Health/Check": "grpc.CheckRequest",
  "grpc.Health/Version": "grpc.CheckRequest",
  "microvm.agent.v1.Introspection/GetVersion": "microvm.agent.v1.GetVersionRequest"
}
export const MESSAGE_FIELDS: Readonly<Record<string, readonly MessageField[]>> = {
 "grpc.CreateContainerRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  },
  {
   "name": "exec_id",
   "property": "execId"
  },
  {
   "name": "string_user",
   "property": "stringUser",
   "message": "grpc.StringUser"
  },
  {
   "name": "devices",
   "property": "devices",
   "message": "grpc.Device"
  },
  {
   "name": "storages",
   "property": "storages",
   "message": "grpc.Storage"
  },
  {
   "name": "OCI",
   "property": "OCI",
   "message": "grpc.Spec"
  },
  {
   "name": "sandbox_pidns",
   "property": "sandboxPidns"
  },
  {
   "name": "shared_mounts",
   "property": "sharedMounts",
   "message": "grpc.SharedMount"
  },
  {
   "name": "stdin_port",
   "property": "stdinPort"
  },
  {
   "name": "stdout_port",
   "property": "stdoutPort"
  },
  {
   "name": "stderr_port",
   "property": "stderrPort"
  }
 ],
 "grpc.StringUser": [
  {
   "name": "uid",
   "property": "uid"
  },
  {
   "name": "gid",
   "property": "gid"
  },
  {
   "name": "additionalGids",
   "property": "additionalGids"
  }
 ],
 "grpc.Device": [
  {
   "name": "id",
   "property": "id"
  },
  {
   "name": "type",
   "property": "type"
  },
  {
   "name": "vm_path",
   "property": "vmPath"
  },
  {
   "name": "container_path",
   "property": "containerPath"
  },
  {
   "name": "options",
   "property": "options"
  }
 ],
 "grpc.Storage": [
  {
   "name": "driver",
   "property": "driver"
  },
  {
   "name": "driver_options",
   "property": "driverOptions"
  },
  {
   "name": "source",
   "property": "source"
  },
  {
   "name": "fstype",
   "property": "fstype"
  },
  {
   "name": "options",
   "property": "options"
  },
  {
   "name": "mount_point",
   "property": "mountPoint"
  },
  {
   "name": "fs_group",
   "property": "fsGroup",
   "message": "grpc.FSGroup"
  },
  {
   "name": "shared",
   "property": "shared"
  }
 ],
 "grpc.FSGroup": [
  {
   "name": "group_id",
   "property": "groupId"
  },
  {
   "name": "group_change_policy",
   "property": "groupChangePolicy"
  }
 ],
 "grpc.Spec": [
  {
   "name": "Version",
   "property": "Version"
  },
  {
   "name": "Process",
   "property": "Process",
   "message": "grpc.Process"
  },
  {
   "name": "Root",
   "property": "Root",
   "message": "grpc.Root"
  },
  {
   "name": "Hostname",
   "property": "Hostname"
  },
  {
   "name": "Mounts",
   "property": "Mounts",
   "message": "grpc.Mount"
  },
  {
   "name": "Hooks",
   "property": "Hooks",
   "message": "grpc.Hooks"
  },
  {
   "name": "Annotations",
   "property": "Annotations",
   "isMap": true
  },
  {
   "name": "Linux",
   "property": "Linux",
   "message": "grpc.Linux"
  },
  {
   "name": "Solaris",
   "property": "Solaris",
   "message": "grpc.Solaris"
  },
  {
   "name": "Windows",
   "property": "Windows",
   "message": "grpc.Windows"
  }
 ],
 "grpc.Process": [
  {
   "name": "Terminal",
   "property": "Terminal"
  },
  {
   "name": "ConsoleSize",
   "property": "ConsoleSize",
   "message": "grpc.Box"
  },
  {
   "name": "User",
   "property": "User",
   "message": "grpc.User"
  },
  {
   "name": "Args",
   "property": "Args"
  },
  {
   "name": "Env",
   "property": "Env"
  },
  {
   "name": "Cwd",
   "property": "Cwd"
  },
  {
   "name": "Capabilities",
   "property": "Capabilities",
   "message": "grpc.LinuxCapabilities"
  },
  {
   "name": "Rlimits",
   "property": "Rlimits",
   "message": "grpc.POSIXRlimit"
  },
  {
   "name": "NoNewPrivileges",
   "property": "NoNewPrivileges"
  },
  {
   "name": "ApparmorProfile",
   "property": "ApparmorProfile"
  },
  {
   "name": "OOMScoreAdj",
   "property": "OOMScoreAdj"
  },
  {
   "name": "SelinuxLabel",
   "property": "SelinuxLabel"
  }
 ],
 "grpc.Box": [
  {
   "name": "Height",
   "property": "Height"
  },
  {
   "name": "Width",
   "property": "Width"
  }
 ],
 "grpc.User": [
  {
   "name": "UID",
   "property": "UID"
  },
  {
   "name": "GID",
   "property": "GID"
  },
  {
   "name": "AdditionalGids",
   "property": "AdditionalGids"
  },
  {
   "name": "Username",
   "property": "Username"
  }
 ],
 "grpc.LinuxCapabilities": [
  {
   "name": "Bounding",
   "property": "Bounding"
  },
  {
   "name": "Effective",
   "property": "Effective"
  },
  {
   "name": "Inheritable",
   "property": "Inheritable"
  },
  {
   "name": "Permitted",
   "property": "Permitted"
  },
  {
   "name": "Ambient",
   "property": "Ambient"
  }
 ],
 "grpc.POSIXRlimit": [
  {
   "name": "Type",
   "property": "Type"
  },
  {
   "name": "Hard",
   "property": "Hard"
  },
  {
   "name": "Soft",
   "property": "Soft"
  }
 ],
 "grpc.Root": [
  {
   "name": "Path",
   "property": "Path"
  },
  {
   "name": "Readonly",
   "property": "Readonly"
  }
 ],
 "grpc.Mount": [
  {
   "name": "destination",
   "property": "destination"
  },
  {
   "name": "source",
   "property": "source"
  },
  {
   "name": "type",
   "property": "type"
  },
  {
   "name": "options",
   "property": "options"
  }
 ],
 "grpc.Hooks": [
  {
   "name": "Prestart",
   "property": "Prestart",
   "message": "grpc.Hook"
  },
  {
   "name": "Poststart",
   "property": "Poststart",
   "message": "grpc.Hook"
  },
  {
   "name": "Poststop",
   "property": "Poststop",
   "message": "grpc.Hook"
  },
  {
   "name": "CreateRuntime",
   "property": "CreateRuntime",
   "message": "grpc.Hook"
  },
  {
   "name": "CreateContainer",
   "property": "CreateContainer",
   "message": "grpc.Hook"
  },
  {
   "name": "StartContainer",
   "property": "StartContainer",
   "message": "grpc.Hook"
  }
 ],
 "grpc.Hook": [
  {
   "name": "Path",
   "property": "Path"
  },
  {
   "name": "Args",
   "property": "Args"
  },
  {
   "name": "Env",
   "property": "Env"
  },
  {
   "name": "Timeout",
   "property": "Timeout"
  }
 ],
 "grpc.Linux": [
  {
   "name": "UIDMappings",
   "property": "UIDMappings",
   "message": "grpc.LinuxIDMapping"
  },
  {
   "name": "GIDMappings",
   "property": "GIDMappings",
   "message": "grpc.LinuxIDMapping"
  },
  {
   "name": "Sysctl",
   "property": "Sysctl",
   "isMap": true
  },
  {
   "name": "Resources",
   "property": "Resources",
   "message": "grpc.LinuxResources"
  },
  {
   "name": "CgroupsPath",
   "property": "CgroupsPath"
  },
  {
   "name": "Namespaces",
   "property": "Namespaces",
   "message": "grpc.LinuxNamespace"
  },
  {
   "name": "Devices",
   "property": "Devices",
   "message": "grpc.LinuxDevice"
  },
  {
   "name": "Seccomp",
   "property": "Seccomp",
   "message": "grpc.LinuxSeccomp"
  },
  {
   "name": "RootfsPropagation",
   "property": "RootfsPropagation"
  },
  {
   "name": "MaskedPaths",
   "property": "MaskedPaths"
  },
  {
   "name": "ReadonlyPaths",
   "property": "ReadonlyPaths"
  },
  {
   "name": "MountLabel",
   "property": "MountLabel"
  },
  {
   "name": "IntelRdt",
   "property": "IntelRdt",
   "message": "grpc.LinuxIntelRdt"
  }
 ],
 "grpc.LinuxIDMapping": [
  {
   "name": "HostID",
   "property": "HostID"
  },
  {
   "name": "ContainerID",
   "property": "ContainerID"
  },
  {
   "name": "Size",
   "property": "Size"
  }
 ],
 "grpc.LinuxResources": [
  {
   "name": "Devices",
   "property": "Devices",
   "message": "grpc.LinuxDeviceCgroup"
  },
  {
   "name": "Memory",
   "property": "Memory",
   "message": "grpc.LinuxMemory"
  },
  {
   "name": "CPU",
   "property": "CPU",
   "message": "grpc.LinuxCPU"
  },
  {
   "name": "Pids",
   "property": "Pids",
   "message": "grpc.LinuxPids"
  },
  {
   "name": "BlockIO",
   "property": "BlockIO",
   "message": "grpc.LinuxBlockIO"
  },
  {
   "name": "HugepageLimits",
   "property": "HugepageLimits",
   "message": "grpc.LinuxHugepageLimit"
  },
  {
   "name": "Network",
   "property": "Network",
   "message": "grpc.LinuxNetwork"
  }
 ],
 "grpc.LinuxDeviceCgroup": [
  {
   "name": "Allow",
   "property": "Allow"
  },
  {
   "name": "Type",
   "property": "Type"
  },
  {
   "name": "Major",
   "property": "Major"
  },
  {
   "name": "Minor",
   "property": "Minor"
  },
  {
   "name": "Access",
   "property": "Access"
  }
 ],
 "grpc.LinuxMemory": [
  {
   "name": "Limit",
   "property": "Limit"
  },
  {
   "name": "Reservation",
   "property": "Reservation"
  },
  {
   "name": "Swap",
   "property": "Swap"
  },
  {
   "name": "Kernel",
   "property": "Kernel"
  },
  {
   "name": "KernelTCP",
   "property": "KernelTCP"
  },
  {
   "name": "Swappiness",
   "property": "Swappiness"
  },
  {
   "name": "DisableOOMKiller",
   "property": "DisableOOMKiller"
  }
 ],
 "grpc.LinuxCPU": [
  {
   "name": "Shares",
   "property": "Shares"
  },
  {
   "name": "Quota",
   "property": "Quota"
  },
  {
   "name": "Period",
   "property": "Period"
  },
  {
   "name": "RealtimeRuntime",
   "property": "RealtimeRuntime"
  },
  {
   "name": "RealtimePeriod",
   "property": "RealtimePeriod"
  },
  {
   "name": "Cpus",
   "property": "Cpus"
  },
  {
   "name": "Mems",
   "property": "Mems"
  }
 ],
 "grpc.LinuxPids": [
  {
   "name": "Limit",
   "property": "Limit"
  }
 ],
 "grpc.LinuxBlockIO": [
  {
   "name": "Weight",
   "property": "Weight"
  },
  {
   "name": "LeafWeight",
   "property": "LeafWeight"
  },
  {
   "name": "WeightDevice",
   "property": "WeightDevice",
   "message": "grpc.LinuxWeightDevice"
  },
  {
   "name": "ThrottleReadBpsDevice",
   "property": "ThrottleReadBpsDevice",
   "message": "grpc.LinuxThrottleDevice"
  },
  {
   "name": "ThrottleWriteBpsDevice",
   "property": "ThrottleWriteBpsDevice",
   "message": "grpc.LinuxThrottleDevice"
  },
  {
   "name": "ThrottleReadIOPSDevice",
   "property": "ThrottleReadIOPSDevice",
   "message": "grpc.LinuxThrottleDevice"
  },
  {
   "name": "ThrottleWriteIOPSDevice",
   "property": "ThrottleWriteIOPSDevice",
   "message": "grpc.LinuxThrottleDevice"
  }
 ],
 "grpc.LinuxWeightDevice": [
  {
   "name": "Major",
   "property": "Major"
  },
  {
   "name": "Minor",
   "property": "Minor"
  },
  {
   "name": "Weight",
   "property": "Weight"
  },
  {
   "name": "LeafWeight",
   "property": "LeafWeight"
  }
 ],
 "grpc.LinuxThrottleDevice": [
  {
   "name": "Major",
   "property": "Major"
  },
  {
   "name": "Minor",
   "property": "Minor"
  },
  {
   "name": "Rate",
   "property": "Rate"
  }
 ],
 "grpc.LinuxHugepageLimit": [
  {
   "name": "Pagesize",
   "property": "Pagesize"
  },
  {
   "name": "Limit",
   "property": "Limit"
  }
 ],
 "grpc.LinuxNetwork": [
  {
   "name": "ClassID",
   "property": "ClassID"
  },
  {
   "name": "Priorities",
   "property": "Priorities",
   "message": "grpc.LinuxInterfacePriority"
  }
 ],
 "grpc.LinuxInterfacePriority": [
  {
   "name": "Name",
   "property": "Name"
  },
  {
   "name": "Priority",
   "property": "Priority"
  }
 ],
 "grpc.LinuxNamespace": [
  {
   "name": "Type",
   "property": "Type"
  },
  {
   "name": "Path",
   "property": "Path"
  }
 ],
 "grpc.LinuxDevice": [
  {
   "name": "Path",
   "property": "Path"
  },
  {
   "name": "Type",
   "property": "Type"
  },
  {
   "name": "Major",
   "property": "Major"
  },
  {
   "name": "Minor",
   "property": "Minor"
  },
  {
   "name": "FileMode",
   "property": "FileMode"
  },
  {
   "name": "UID",
   "property": "UID"
  },
  {
   "name": "GID",
   "property": "GID"
  }
 ],
 "grpc.LinuxSeccomp": [
  {
   "name": "DefaultAction",
   "property": "DefaultAction"
  },
  {
   "name": "Architectures",
   "property": "Architectures"
  },
  {
   "name": "Flags",
   "property": "Flags"
  },
  {
   "name": "Syscalls",
   "property": "Syscalls",
   "message": "grpc.LinuxSyscall"
  }
 ],
 "grpc.LinuxSyscall": [
  {
   "name": "Names",
   "property": "Names"
  },
  {
   "name": "Action",
   "property": "Action"
  },
  {
   "name": "errnoret",
   "property": "errnoret",
   "oneof": "ErrnoRet"
  },
  {
   "name": "Args",
   "property": "Args",
   "message": "grpc.LinuxSeccompArg"
  }
 ],
 "grpc.LinuxSeccompArg": [
  {
   "name": "Index",
   "property": "Index"
  },
  {
   "name": "Value",
   "property": "Value"
  },
  {
   "name": "ValueTwo",
   "property": "ValueTwo"
  },
  {
   "name": "Op",
   "property": "Op"
  }
 ],
 "grpc.LinuxIntelRdt": [
  {
   "name": "L3CacheSchema",
   "property": "L3CacheSchema"
  }
 ],
 "grpc.Solaris": [
  {
   "name": "dummy",
   "property": "dummy"
  }
 ],
 "grpc.Windows": [
  {
   "name": "dummy",
   "property": "dummy"
  }
 ],
 "grpc.SharedMount": [
  {
   "name": "name",
   "property": "name"
  },
  {
   "name": "src_ctr",
   "property": "srcCtr"
  },
  {
   "name": "src_path",
   "property": "srcPath"
  },
  {
   "name": "dst_ctr",
   "property": "dstCtr"
  },
  {
   "name": "dst_path",
   "property": "dstPath"
  }
 ],
 "grpc.StartContainerRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "grpc.RemoveContainerRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  },
  {
   "name": "timeout",
   "property": "timeout"
  }
 ],
 "grpc.ExecProcessRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  },
  {
   "name": "exec_id",
   "property": "execId"
  },
  {
   "name": "string_user",
   "property": "stringUser",
   "message": "grpc.StringUser"
  },
  {
   "name": "process",
   "property": "process",
   "message": "grpc.Process"
  },
  {
   "name": "stdin_port",
   "property": "stdinPort"
  },
  {
   "name": "stdout_port",
   "property": "stdoutPort"
  },
  {
   "name": "stderr_port",
   "property": "stderrPort"
  }
 ],
 "grpc.SignalProcessRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  },
  {
   "name": "exec_id",
   "property": "execId"
  },
  {
   "name": "signal",
   "property": "signal"
  }
 ],
 "grpc.WaitProcessRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  },
  {
   "name": "exec_id",
   "property": "execId"
  }
 ],
 "grpc.UpdateContainerRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  },
  {
   "name": "resources",
   "property": "resources",
   "message": "grpc.LinuxResources"
  }
 ],
 "grpc.UpdateEphemeralMountsRequest": [
  {
   "name": "storages",
   "property": "storages",
   "message": "grpc.Storage"
  }
 ],
 "grpc.StatsContainerRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "grpc.PauseContainerRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "grpc.ResumeContainerRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "grpc.RemoveStaleVirtiofsShareMountsRequest": [],
 "grpc.GetDiagnosticDataRequest": [
  {
   "name": "log_type",
   "property": "logType"
  },
  {
   "name": "container_id",
   "property": "containerId"
  }
 ],
 "grpc.WriteStreamRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  },
  {
   "name": "exec_id",
   "property": "execId"
  },
  {
   "name": "data",
   "property": "data"
  }
 ],
 "grpc.ReadStreamRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  },
  {
   "name": "exec_id",
   "property": "execId"
  },
  {
   "name": "len",
   "property": "len"
  }
 ],
 "grpc.CloseStdinRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  },
  {
   "name": "exec_id",
   "property": "execId"
  }
 ],
 "grpc.TtyWinResizeRequest": [
  {
   "name": "container_id",
   "property": "containerId"
  },
  {
   "name": "exec_id",
   "property": "execId"
  },
  {
   "name": "row",
   "property": "row"
  },
  {
   "name": "column",
   "property": "column"
  }
 ],
 "grpc.UpdateInterfaceRequest": [
  {
   "name": "interface",
   "property": "interface",
   "message": "types.Interface"
  }
 ],
 "types.Interface": [
  {
   "name": "device",
   "property": "device"
  },
  {
   "name": "name",
   "property": "name"
  },
  {
   "name": "IPAddresses",
   "property": "IPAddresses",
   "message": "types.IPAddress"
  },
  {
   "name": "mtu",
   "property": "mtu"
  },
  {
   "name": "hwAddr",
   "property": "hwAddr"
  },
  {
   "name": "devicePath",
   "property": "devicePath"
  },
  {
   "name": "type",
   "property": "type"
  },
  {
   "name": "raw_flags",
   "property": "rawFlags"
  }
 ],
 "types.IPAddress": [
  {
   "name": "family",
   "property": "family"
  },
  {
   "name": "address",
   "property": "address"
  },
  {
   "name": "mask",
   "property": "mask"
  }
 ],
 "grpc.UpdateRoutesRequest": [
  {
   "name": "routes",
   "property": "routes",
   "message": "grpc.Routes"
  }
 ],
 "grpc.Routes": [
  {
   "name": "Routes",
   "property": "Routes",
   "message": "types.Route"
  }
 ],
 "types.Route": [
  {
   "name": "dest",
   "property": "dest"
  },
  {
   "name": "gateway",
   "property": "gateway"
  },
  {
   "name": "device",
   "property": "device"
  },
  {
   "name": "source",
   "property": "source"
  },
  {
   "name": "scope",
   "property": "scope"
  },
  {
   "name": "family",
   "property": "family"
  },
  {
   "name": "flags",
   "property": "flags"
  },
  {
   "name": "mtu",
   "property": "mtu"
  }
 ],
 "grpc.ListInterfacesRequest": [],
 "grpc.ListRoutesRequest": [],
 "grpc.AddARPNeighborsRequest": [
  {
   "name": "neighbors",
   "property": "neighbors",
   "message": "grpc.ARPNeighbors"
  }
 ],
 "grpc.ARPNeighbors": [
  {
   "name": "ARPNeighbors",
   "property": "ARPNeighbors",
   "message": "types.ARPNeighbor"
  }
 ],
 "types.ARPNeighbor": [
  {
   "name": "toIPAddress",
   "property": "toIPAddress",
   "message": "types.IPAddress"
  },
  {
   "name": "device",
   "property": "device"
  },
  {
   "name": "lladdr",
   "property": "lladdr"
  },
  {
   "name": "state",
   "property": "state"
  },
  {
   "name": "flags",
   "property": "flags"
  }
 ],
 "grpc.GetIPTablesRequest": [
  {
   "name": "is_ipv6",
   "property": "isIpv6"
  }
 ],
 "grpc.SetIPTablesRequest": [
  {
   "name": "is_ipv6",
   "property": "isIpv6"
  },
  {
   "name": "data",
   "property": "data"
  }
 ],
 "grpc.GetMetricsRequest": [],
 "grpc.MemAgentMemcgConfig": [
  {
   "name": "disabled",
   "property": "disabled"
  },
  {
   "name": "swap",
   "property": "swap"
  },
  {
   "name": "swappiness_max",
   "property": "swappinessMax"
  },
  {
   "name": "period_secs",
   "property": "periodSecs"
  },
  {
   "name": "period_psi_percent_limit",
   "property": "periodPsiPercentLimit"
  },
  {
   "name": "eviction_psi_percent_limit",
   "property": "evictionPsiPercentLimit"
  },
  {
   "name": "eviction_run_aging_count_min",
   "property": "evictionRunAgingCountMin"
  }
 ],
 "grpc.MemAgentCompactConfig": [
  {
   "name": "disabled",
   "property": "disabled"
  },
  {
   "name": "period_secs",
   "property": "periodSecs"
  },
  {
   "name": "period_psi_percent_limit",
   "property": "periodPsiPercentLimit"
  },
  {
   "name": "compact_psi_percent_limit",
   "property": "compactPsiPercentLimit"
  },
  {
   "name": "compact_sec_max",
   "property": "compactSecMax"
  },
  {
   "name": "compact_order",
   "property": "compactOrder"
  },
  {
   "name": "compact_threshold",
   "property": "compactThreshold"
  },
  {
   "name": "compact_force_times",
   "property": "compactForceTimes"
  }
 ],
 "grpc.CreateSandboxRequest": [
  {
   "name": "hostname",
   "property": "hostname"
  },
  {
   "name": "dns",
   "property": "dns"
  },
  {
   "name": "storages",
   "property": "storages",
   "message": "grpc.Storage"
  },
  {
   "name": "sandbox_pidns",
   "property": "sandboxPidns"
  },
  {
   "name": "sandbox_id",
   "property": "sandboxId"
  },
  {
   "name": "guest_hook_path",
   "property": "guestHookPath"
  },
  {
   "name": "kernel_modules",
   "property": "kernelModules",
   "message": "grpc.KernelModule"
  }
 ],
 "grpc.KernelModule": [
  {
   "name": "name",
   "property": "name"
  },
  {
   "name": "parameters",
   "property": "parameters"
  }
 ],
 "grpc.DestroySandboxRequest": [],
 "grpc.OnlineCPUMemRequest": [
  {
   "name": "wait",
   "property": "wait"
  },
  {
   "name": "nb_cpus",
   "property": "nbCpus"
  },
  {
   "name": "cpu_only",
   "property": "cpuOnly"
  }
 ],
 "grpc.ReseedRandomDevRequest": [
  {
   "name": "data",
   "property": "data"
  }
 ],
 "grpc.GuestDetailsRequest": [
  {
   "name": "mem_block_size",
   "property": "memBlockSize"
  },
  {
   "name": "mem_hotplug_probe",
   "property": "memHotplugProbe"
  }
 ],
 "grpc.MemHotplugByProbeRequest": [
  {
   "name": "memHotplugProbeAddr",
   "property": "memHotplugProbeAddr"
  }
 ],
 "grpc.SetGuestDateTimeRequest": [
  {
   "name": "Sec",
   "property": "Sec"
  },
  {
   "name": "Usec",
   "property": "Usec"
  }
 ],
 "grpc.CopyFileRequest": [
  {
   "name": "path",
   "property": "path"
  },
  {
   "name": "file_size",
   "property": "fileSize"
  },
  {
   "name": "file_mode",
   "property": "fileMode"
  },
  {
   "name": "dir_mode",
   "property": "dirMode"
  },
  {
   "name": "uid",
   "property": "uid"
  },
  {
   "name": "gid",
   "property": "gid"
  },
  {
   "name": "offset",
   "property": "offset"
  },
  {
   "name": "data",
   "property": "data"
  }
 ],
 "grpc.GetOOMEventRequest": [],
 "grpc.AddSwapRequest": [
  {
   "name": "PCIPath",
   "property": "PCIPath"
  }
 ],
 "grpc.AddSwapPathRequest": [
  {
   "name": "path",
   "property": "path"
  }
 ],
 "grpc.VolumeStatsRequest": [
  {
   "name": "volume_guest_path",
   "property": "volumeGuestPath"
  }
 ],
 "grpc.ResizeVolumeRequest": [
  {
   "name": "volume_guest_path",
   "property": "volumeGuestPath"
  },
  {
   "name": "size",
   "property": "size"
  }
 ],
 "grpc.SetPolicyRequest": [
  {
   "name": "policy",
   "property": "policy"
  }
 ],
 "grpc.health.v1.HealthCheckRequest": [
  {
   "name": "service",
   "property": "service"
  }
 ],
 "grpc.health.v1.HealthListRequest": [],
 "grpc.reflection.v1.ServerReflectionRequest": [
  {
   "name": "host",
   "property": "host"
  },
  {
   "name": "file_by_filename",
   "property": "fileByFilename",
   "oneof": "message_request"
  },
  {
   "name": "file_containing_symbol",
   "property": "fileContainingSymbol",
   "oneof": "message_request"
  },
  {
   "name": "file_containing_extension",
   "property": "fileContainingExtension",
   "message": "grpc.reflection.v1.ExtensionRequest",
   "oneof": "message_request"
  },
  {
   "name": "all_extension_numbers_of_type",
   "property": "allExtensionNumbersOfType",
   "oneof": "message_request"
  },
  {
   "name": "list_services",
   "property": "listServices",
   "oneof": "message_request"
  }
 ],
 "grpc.reflection.v1.ExtensionRequest": [
  {
   "name": "containing_type",
   "property": "containingType"
  },
  {
   "name": "extension_number",
   "property": "extensionNumber"
  }
 ],
 "grpc.CheckRequest": [
  {
   "name": "service",
   "property": "service"
  }
 ],
 "microvm.agent.v1.GetVersionRequest": []
}
