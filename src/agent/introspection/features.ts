import { NO_POLICY_ENGINE } from '../../os/policy/policy-engine.ts'
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
    readonly debugConsolePort: number
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

/** Words of the kernel's command line: the console at the port that shims dial, and as much output as can be kept. */
const CONSOLE_WORDS = 'agent.debug_console agent.debug_console_vport=1026'
const REPLAY_WORDS = 'agent.output_replay_bytes=65536'

/** The parts of the agent that a setting turns on, or that the image may lack. */
export function featuresOf({ policy, config, os, noShell }: FeatureSources): readonly Feature[] {
  /** `words` turn it on, where the name of the setting alone does not. */
  const bySetting = (name: string, isOn: boolean, setting: string, words?: string) => ({
    name,
    missing: isOn ? undefined : `${setting} is not set${words === undefined ? '' : `, want ${words}`}`,
  })
  const { debugConsolePort: port } = config
  return [
    { name: 'policy', missing: policy.isSupported() ? undefined : NO_POLICY_ENGINE },
    {
      name: 'connection broker',
      missing: os.broker === undefined ? 'the agent does not run below vminit' : undefined,
    },
    config.debugConsole
      ? { name: 'debug console', missing: noShell, detail: port === 0 ? '/dev/console' : `port ${port}` }
      : bySetting('debug console', false, 'agent.debug_console', CONSOLE_WORDS),
    bySetting('memory agent', config.memAgentEnable, 'agent.mem_agent_enable'),
    bySetting('devices by VISIBLE_CDI_DEVICES', config.visibleCdiDevices, 'agent.visible_cdi_devices'),
    bySetting('output again', config.outputReplayBytes > 0, 'agent.output_replay_bytes', REPLAY_WORDS),
    bySetting('streams on a port', config.passfdListenerPort > 0, 'agent.passfd_listener_port'),
  ]
}
