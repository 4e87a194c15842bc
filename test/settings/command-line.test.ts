import { describe, expect, it } from 'vitest'
import { commandLineSettings, configFileOf, unknownWords } from '../../src/settings/command-line.ts'
import { KATA_COMMAND_LINE } from '../fixtures/kata-command-line.ts'

describe('commandLineSettings', () => {
  it('finds settings between other words and any white space', () => {
    expect(commandLineSettings('ro quiet\tagent.log=debug  agent.log_vport=1025\n')).toEqual({
      logLevel: 'debug',
      logPort: 1025,
    })
  })

  it.each([
    ['agent.logs=debug', 'a longer key'],
    ['xagent.log=debug', 'a key that only ends alike'],
    ['agent.future=1', 'an unknown key'],
    ['agent.log', 'a bare word where a value belongs'],
    ['', 'nothing at all'],
  ])('ignores %j: %s', (commandLine) => {
    expect(commandLineSettings(commandLine)).toEqual({})
  })

  it('uses the last of two values', () => {
    expect(commandLineSettings('agent.log=debug agent.log=trace').logLevel).toBe('trace')
  })

  it('keeps an equals sign within a value', () => {
    expect(commandLineSettings('agent.https_proxy=http://p/?a=b').httpsProxy).toBe('http://p/?a=b')
  })

  it.each([
    ['fatal', 'critical'],
    ['panic', 'critical'],
    ['critical', 'critical'],
    ['error', 'error'],
    ['warn', 'warn'],
    ['warning', 'warn'],
    ['info', 'info'],
    ['debug', 'debug'],
    ['trace', 'trace'],
  ])('reads the level %s', (word, level) => {
    expect(commandLineSettings(`agent.log=${word}`).logLevel).toBe(level)
  })

  it.each(['kata-agent', 'fifteen-bytes-x', 'ä-agent'])('reads the process name %s', (name) => {
    expect(commandLineSettings(`agent.process_name=${name}`).processName).toBe(name)
  })

  it('takes one address for the peer, and no other word in its place', () => {
    expect(commandLineSettings('agent.server_peer=FD00:0::1').serverPeer).toBe('fd00::1')
    for (const word of ['', '=', '=::', '=0.0.0.0', '=10.0.0.0/24', '=host'])
      expect(() => commandLineSettings(`agent.server_peer${word}`)).toThrow('invalid address')
  })

  it.each(['', 'sixteen-bytes-xx', 'seven-ääää-xx', 'a/b', 'a\u0007b'])(
    'refuses the process name %j',
    (name) => {
      expect(() => commandLineSettings(`agent.process_name=${name}`)).toThrow(
        'invalid name, want 1 to 15 bytes without / and control characters',
      )
    },
  )

  it.each(['agent.debug_console', 'agent.devmode'])('reads %s only as a bare word', (key) => {
    expect(Object.values(commandLineSettings(key))).toEqual([true])
    expect(commandLineSettings(`${key}=1`)).toEqual({})
  })

  it.each([
    ['agent.trace', true],
    ['agent.trace=true', true],
    ['agent.trace=2', true],
    ['agent.trace=false', false],
    ['agent.trace=0', false],
    ['agent.trace=00', false],
    ['agent.trace=yes', false],
    ['agent.trace=', false],
    ['agent.trace=true=true', false],
  ])('reads the boolean %s as %s', (token, value) => {
    expect(commandLineSettings(token).tracing).toBe(value)
  })

  it.each([
    ['systemd.unified_cgroup_hierarchy=0', false],
    ['systemd.unified_cgroup_hierarchy=false', false],
    ['systemd.unified_cgroup_hierarchy=1', true],
    ['systemd.unified_cgroup_hierarchy=yes', true],
  ])('selects cgroup v1 only for false or 0: %s', (token, unified) => {
    expect(commandLineSettings(token).unifiedCgroupHierarchy).toBe(unified)
  })

  it('reads what cgroup_no_v1 keeps from cgroup v1', () => {
    expect(commandLineSettings('cgroup_no_v1=all').cgroupNoV1).toBe('all')
    expect(commandLineSettings('cgroup_no_v1=memory,pids').cgroupNoV1).toBe('memory,pids')
  })

  it('reads time-outs in seconds and ignores zero', () => {
    expect(commandLineSettings('agent.hotplug_timeout=10').hotplugTimeoutMs).toBe(10_000)
    expect(commandLineSettings('agent.hotplug_timeout=0')).toEqual({})
    expect(commandLineSettings('agent.hotplug_timeout=10 agent.hotplug_timeout=0').hotplugTimeoutMs).toBe(
      10_000,
    )
  })

  it.each([
    ['vsock', { kind: 'vsock' }],
    ['unix:/run/ports', { kind: 'unix', folder: '/run/ports' }],
  ])('reads where the ports for streams are: %s', (word, dial) => {
    expect(commandLineSettings(`agent.stdio_dial=${word}`)).toEqual({ stdioDial: dial })
  })

  it.each(['unix:ports', 'unix:', 'tcp:1'])('refuses %s as the location of ports for streams', (word) => {
    expect(() => commandLineSettings(`agent.stdio_dial=${word}`)).toThrow(
      `agent.stdio_dial=${word}: invalid value, want vsock or unix: and an absolute path`,
    )
  })

  it('limits time-outs to the longest time of a timer', () => {
    expect(commandLineSettings('agent.cdi_timeout=99999999999').cdiTimeoutMs).toBe(2 ** 31 - 1)
  })

  it('ignores ports that are zero or less', () => {
    expect(commandLineSettings('agent.log_vport=0 agent.debug_console_vport=-1')).toEqual({})
  })

  it('refuses a mem_agent key out of its range', () => {
    expect(() => commandLineSettings('agent.mem_agent_enable agent.mem_agent_compact_order=11')).toThrow(
      'agent.mem_agent_compact_order=11: out of range, want 0 to 10',
    )
  })

  it('reads mem_agent keys only after mem_agent_enable', () => {
    const before = 'agent.mem_agent_compact_disable=1 agent.mem_agent_enable agent.mem_agent_memcg_swap=1'
    expect(commandLineSettings(before)).toEqual({ memAgentEnable: true, memAgentMemcgSwap: true })
    expect(commandLineSettings('agent.mem_agent_memcg_swap=1')).toEqual({})
  })

  it.each([
    ['agent.log=loud', 'unknown level, want one of'],
    ['agent.log=constructor', 'unknown level, want one of'],
    ['agent.log=', 'unknown level, want one of'],
    ['agent.hotplug_timeout=3s', 'a whole number of seconds'],
    ['agent.hotplug_timeout=-1', 'a whole number of seconds'],
    ['agent.hotplug_timeout=1=2', 'a whole number of seconds'],
    ['agent.hotplug_timeout=', 'a whole number of seconds'],
    ['agent.log_vport=abc', 'not a number'],
    ['agent.log_vport=4294967296', 'port out of range, want at most 4294967295'],
    ['agent.container_pipe_size=-1', 'negative, want 0 or more'],
    ['agent.container_pipe_size=1.5', 'not a number'],
    ['agent.server_addr=', 'value missing'],
    ['agent.runtime=docker', 'unknown runtime, want runc, crun or an absolute path'],
    ['agent.guest_components_procs=most', 'unknown value, want one of none, attestation-agent'],
  ])('refuses %s and names key, value and reason', (token, reason) => {
    const read = () => commandLineSettings(`quiet ${token} ro`)
    expect(read).toThrow(`${token}: `)
    expect(read).toThrow(reason)
    expect(read).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }))
  })

  it.each(['runc', 'crun', '/opt/bin/youki'])('reads the runtime %s', (runtime) => {
    expect(commandLineSettings(`agent.runtime=${runtime}`).runtime).toBe(runtime)
  })
})

describe('configFileOf', () => {
  it('returns the first file that is named', () => {
    expect(configFileOf('agent.config_file=/etc/a.toml agent.config_file=/etc/b.toml')).toBe('/etc/a.toml')
  })

  it('is undefined when no file is named', () => {
    expect(configFileOf('agent.config_file agent.config_files=/x')).toBeUndefined()
  })
})

describe('unknownWords', () => {
  it('returns each `agent.` word that is no setting, without its value', () => {
    const commandLine =
      'ro agents.x=1 agent.lgo=debug agent.log=info agent.trace agent. agent.lgo agent.Log=debug'
    expect(unknownWords(commandLine)).toEqual(['agent.lgo', 'agent.', 'agent.Log'])
  })

  it.each([
    ['what Kata’s shims write', KATA_COMMAND_LINE.join(' ')],
    ['settings that this agent does not use', 'agent.https_proxy=http://p agent.guest_components_procs=none'],
    ['the name of a file', 'agent.config_file=/etc/agent.toml'],
  ])('returns nothing of %s', (_what, commandLine) => {
    expect(unknownWords(commandLine)).toEqual([])
  })
})
