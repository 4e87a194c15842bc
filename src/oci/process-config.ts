import type { LinuxCapabilities, Process } from '../gen/oci.ts'
import { type Json, omitEmpty } from './json.ts'

/**
 * The runtime's JSON for one process (behaviour spec, section D.2). oomScoreAdj is always written: a runtime that
 * is told nothing leaves the container what it inherited from us.
 */
export function processConfig(process: Process): Json {
  return {
    ...omitEmpty({
      terminal: process.Terminal,
      consoleSize: process.ConsoleSize && {
        height: process.ConsoleSize.Height,
        width: process.ConsoleSize.Width,
      },
      args: process.Args,
      env: process.Env,
      rlimits: process.Rlimits.map(({ Type, Hard, Soft }) => ({ type: Type, hard: Hard, soft: Soft })),
      noNewPrivileges: process.NoNewPrivileges,
      apparmorProfile: process.ApparmorProfile,
      selinuxLabel: process.SelinuxLabel,
    }),
    user: {
      uid: process.User?.UID ?? 0,
      gid: process.User?.GID ?? 0,
      ...omitEmpty({ additionalGids: process.User?.AdditionalGids, username: process.User?.Username }),
    },
    cwd: process.Cwd === '' ? '/' : process.Cwd,
    oomScoreAdj: process.OOMScoreAdj,
    capabilities: process.Capabilities && capabilitiesConfig(process.Capabilities),
  }
}

/** Every set is written, empty ones too: an absent list would leave the process what the runtime has. */
function capabilitiesConfig(capabilities: LinuxCapabilities): Json {
  return {
    bounding: capabilities.Bounding,
    effective: capabilities.Effective,
    inheritable: capabilities.Inheritable,
    permitted: capabilities.Permitted,
    ambient: capabilities.Ambient,
  }
}
