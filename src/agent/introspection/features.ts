import type { Feature } from './capabilities.ts'

/** What the features of the agent are told from. */
export interface FeatureSources {
  readonly policy: { isSupported(): boolean }
  readonly config: {
    readonly memAgentEnable: boolean
    readonly visibleCdiDevices: boolean
    readonly passfdListenerPort: number
    readonly outputReplayBytes: number
    readonly debugConsole: boolean
  }
  /** Absent without `vminit`. */
  readonly os: { readonly broker?: object | undefined }
  /** Why the guest has no shell; undefined when it has one. */
  readonly noShell: string | undefined
}

/** Programs that the agent runs, besides the OCI runtime. */
export const PROGRAMS: readonly string[] = [
  '/sbin/modprobe',
  '/sbin/mkfs.ext4',
  '/usr/sbin/iptables-save',
  '/usr/sbin/iptables-restore',
  '/usr/sbin/ip6tables-save',
  '/usr/sbin/ip6tables-restore',
]

/** The parts of the agent that a setting turns on, or that the image may lack. */
export function featuresOf({ policy, config, os, noShell }: FeatureSources): readonly Feature[] {
  const bySetting = (name: string, isOn: boolean, setting: string) => ({
    name,
    missing: isOn ? undefined : `${setting} is not set`,
  })
  return [
    { name: 'policy', missing: policy.isSupported() ? undefined : 'this image has no policy engine' },
    {
      name: 'connection broker',
      missing: os.broker === undefined ? 'the agent does not run below vminit' : undefined,
    },
    config.debugConsole
      ? { name: 'debug console', missing: noShell }
      : bySetting('debug console', false, 'agent.debug_console'),
    bySetting('memory agent', config.memAgentEnable, 'agent.mem_agent_enable'),
    bySetting('devices by VISIBLE_CDI_DEVICES', config.visibleCdiDevices, 'agent.visible_cdi_devices'),
    bySetting('output again', config.outputReplayBytes > 0, 'agent.output_replay_bytes'),
    bySetting('streams on a port', config.passfdListenerPort > 0, 'agent.passfd_listener_port'),
  ]
}
