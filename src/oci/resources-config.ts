import type {
  LinuxBlockIO,
  LinuxDeviceCgroup,
  LinuxNetwork,
  LinuxResources,
  LinuxThrottleDevice,
  LinuxWeightDevice,
} from '../gen/oci.ts'
import { type Json, omitEmpty } from './json.ts'

/**
 * The `resources` object of `config.json`, also the input of `runtime update` (behaviour spec, section D.2).
 * 0 means that no limit was given; -1, no limit at all, is passed on.
 */
export function resourcesConfig(resources: LinuxResources): Json {
  const { Memory: memory, CPU: cpu } = resources
  return omitEmpty({
    devices: resources.Devices.map(deviceRuleConfig),
    memory:
      memory &&
      omitEmpty({
        limit: memory.Limit,
        reservation: memory.Reservation,
        swap: memory.Swap,
        kernel: memory.Kernel,
        kernelTCP: memory.KernelTCP,
        swappiness: memory.Swappiness,
        disableOOMKiller: memory.DisableOOMKiller,
      }),
    cpu:
      cpu &&
      omitEmpty({
        shares: cpu.Shares,
        quota: cpu.Quota,
        period: cpu.Period,
        realtimeRuntime: cpu.RealtimeRuntime,
        realtimePeriod: cpu.RealtimePeriod,
        cpus: cpu.Cpus,
        mems: cpu.Mems,
      }),
    pids: resources.Pids && omitEmpty({ limit: resources.Pids.Limit }),
    blockIO: resources.BlockIO && blockIoConfig(resources.BlockIO),
    hugepageLimits: resources.HugepageLimits.map(({ Pagesize, Limit }) => ({
      pageSize: Pagesize,
      limit: Limit,
    })),
    network: resources.Network && networkConfig(resources.Network),
  })
}

/** A number below 0 means any, 0 is one (`withExplicitWildcards`); an empty type means all. */
function deviceRuleConfig(rule: LinuxDeviceCgroup): Json {
  return {
    allow: rule.Allow,
    type: rule.Type === '' ? 'a' : rule.Type,
    ...(rule.Major < 0n ? {} : { major: rule.Major }),
    ...(rule.Minor < 0n ? {} : { minor: rule.Minor }),
    ...omitEmpty({ access: rule.Access }),
  }
}

function blockIoConfig(block: LinuxBlockIO): Json {
  return omitEmpty({
    weight: block.Weight,
    leafWeight: block.LeafWeight,
    weightDevice: block.WeightDevice.map(weightConfig),
    throttleReadBpsDevice: block.ThrottleReadBpsDevice.map(throttleConfig),
    throttleWriteBpsDevice: block.ThrottleWriteBpsDevice.map(throttleConfig),
    throttleReadIOPSDevice: block.ThrottleReadIOPSDevice.map(throttleConfig),
    throttleWriteIOPSDevice: block.ThrottleWriteIOPSDevice.map(throttleConfig),
  })
}

function weightConfig(device: LinuxWeightDevice): Json {
  return {
    major: device.Major,
    minor: device.Minor,
    ...omitEmpty({ weight: device.Weight, leafWeight: device.LeafWeight }),
  }
}

function throttleConfig(device: LinuxThrottleDevice): Json {
  return { major: device.Major, minor: device.Minor, rate: device.Rate }
}

function networkConfig(network: LinuxNetwork): Json {
  return omitEmpty({
    classID: network.ClassID,
    priorities: network.Priorities.map(({ Name, Priority }) => ({ name: Name, priority: Priority })),
  })
}
