import { describe, expect, it } from 'vitest'
import { configFileSettings } from '../../../src/agent/config/load-config.ts'

const read = (content: string) => configFileSettings('/etc/agent.toml', content)

describe('configFileSettings', () => {
  it('reads every kind of value', async () => {
    const settings = await read(`
      debug_console = true
      log_level = "trace"
      server_addr = "unix://@agent"
      container_pipe_size = 2097152
      runtime = "crun"
      unified_cgroup_hierarchy = false
      hotplug_timeout = { secs = 5, nanos = 500000000 }
      [cdi_timeout]
      secs = 1
      nanos = 0
    `)
    expect(settings).toEqual({
      debugConsole: true,
      logLevel: 'trace',
      serverAddress: 'unix://@agent',
      containerPipeSizeBytes: 2_097_152,
      runtime: 'crun',
      unifiedCgroupHierarchy: false,
      hotplugTimeoutMs: 5500,
      cdiTimeoutMs: 1000,
    })
  })

  it('sets nothing when empty, and ignores unknown keys', async () => {
    expect(await read('')).toEqual({})
    expect(await read('future = 1\n[table]\nkey = "x"')).toEqual({})
  })

  it('ignores a time-out of zero', async () => {
    expect(await read('hotplug_timeout = { secs = 0, nanos = 0 }')).toEqual({})
  })

  it.each([
    ['hotplug_timeout = 3', 'a table { secs = N, nanos = N }'],
    ['hotplug_timeout = { secs = "3" }', 'a table { secs = N, nanos = N }'],
    ['hotplug_timeout = { secs = -1, nanos = 0 }', 'a table { secs = N, nanos = N }'],
    ['log_level = "loud"', 'unknown level, want one of'],
    ['log_level = 3', 'not a string'],
    ['tracing = "yes"', 'true or false'],
    ['log_vport = "1025"', 'not a number'],
    ['container_pipe_size = -4', 'negative, want 0 or more'],
    ['mem_agent_compact_order = 11', 'out of range, want 0 to 10'],
    ['mem_agent_memcg_period_secs = 9223372036854775807', 'out of range, want 1 to 2147483'],
    ['hotplug_timeout = 9223372036854775807', 'a table { secs = N, nanos = N }'],
  ])('refuses %s and names file, key and reason', async (line, reason) => {
    const key = line.slice(0, line.indexOf(' '))
    await expect(read(line)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringMatching(`^/etc/agent.toml: ${key} = .*: .*${reason}`),
    })
  })

  it('reads the largest TOML number as never', async () => {
    expect(await read('mem_agent_compact_force_times = 9223372036854775807')).toEqual({
      memAgentCompactForceTimes: Number.MAX_SAFE_INTEGER,
    })
  })

  it('names a file that is not TOML', async () => {
    await expect(read('log_level =')).rejects.toThrow(/^\/etc\/agent.toml: /)
  })
})
