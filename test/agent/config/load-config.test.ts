import { describe, expect, it } from 'vitest'
import { defaultConfig, loadConfig } from '../../../src/agent/config/load-config.ts'

describe('loadConfig', () => {
  it('uses the defaults when no source sets anything', async () => {
    const { config, withoutEffect } = await load({ commandLine: 'ro quiet' })
    expect(config).toEqual(defaultConfig())
    expect(withoutEffect).toEqual([])
    expect(config).toMatchObject({
      serverAddress: 'vsock://-1:1024',
      logLevel: 'info',
      hotplugTimeoutMs: 3000,
      runtime: 'runc',
      unifiedCgroupHierarchy: true,
      vsockAllowLoopback: false,
    })
  })

  it('names the changed settings that have no effect, and the unknown ones of the kernel command line', async () => {
    const effective = 'agent.log=debug agent.log_vport=0'
    const { config, withoutEffect } = await load({
      commandLine: `agent.devmode agent.secure_storage_integrity=false agent.lgo=debug agent.debug_console=1 ${effective}`,
    })
    expect(withoutEffect).toEqual([
      { settings: 'agent.devmode, agent.secure_storage_integrity', because: 'not supported' },
      { settings: 'agent.lgo', because: 'unknown' },
      { settings: 'agent.debug_console=1', because: 'want the word without a value' },
    ])
    expect(config.logLevel).toBe('debug')
  })

  it('lets the environment override the kernel command line', async () => {
    const { config } = await load({
      commandLine: 'agent.log=debug agent.hotplug_timeout=9',
      environment: { KATA_AGENT_LOG_LEVEL: 'trace', KATA_AGENT_TRACING: '1' },
    })
    expect(config).toMatchObject({ logLevel: 'trace', hotplugTimeoutMs: 9000, tracing: true })
  })

  it('reads --config instead of the kernel command line, and the environment over it', async () => {
    const { config } = await load({
      commandLine: 'agent.hotplug_timeout=9 agent.config_file=/missing',
      files: { '/etc/agent.toml': 'log_level = "debug"\nserver_addr = "tcp://0.0.0.0:1"' },
      environment: { KATA_AGENT_SERVER_ADDR: 'unix:///run/agent' },
      configFile: '/etc/agent.toml',
    })
    expect(config).toMatchObject({
      logLevel: 'debug',
      hotplugTimeoutMs: 3000,
      serverAddress: 'unix:///run/agent',
    })
  })

  it('uses only the file that the kernel command line names', async () => {
    const { config, withoutEffect } = await load({
      commandLine: 'agent.lgo agent.hotplug_timeout=bad agent.config_file=/etc/agent.toml',
      files: { '/etc/agent.toml': 'hotplug_timeout = { secs = 7 }' },
      environment: { KATA_AGENT_LOG_LEVEL: 'trace' },
    })
    expect(config).toMatchObject({ logLevel: 'info', hotplugTimeoutMs: 7000 })
    expect(withoutEffect).toEqual([])
  })

  it('lets --server-addr override everything', async () => {
    const { config } = await load({
      commandLine: 'agent.server_addr=vsock://-1:1',
      environment: { KATA_AGENT_SERVER_ADDR: 'unix:///run/agent' },
      serverAddress: 'unix://@mine',
    })
    expect(config.serverAddress).toBe('unix://@mine')
  })

  it('names a malformed variable', async () => {
    const loading = load({ commandLine: '', environment: { KATA_AGENT_LOG_LEVEL: 'loud' } })
    await expect(loading).rejects.toThrow(/^KATA_AGENT_LOG_LEVEL=loud: unknown level, want one of/)
  })

  it('fails when the file is missing', async () => {
    await expect(load({ commandLine: '', configFile: '/missing' })).rejects.toThrow('/missing')
  })
})

function load(given: {
  readonly commandLine: string
  readonly files?: Readonly<Record<string, string>>
  readonly environment?: Readonly<Record<string, string>>
  readonly configFile?: string
  readonly serverAddress?: string
}) {
  const files = given.files ?? {}
  return loadConfig({
    files: {
      readText: async (path) => {
        const content = files[path]
        if (content === undefined) throw new Error(`open ${path}: ENOENT`)
        return content
      },
    },
    scratch: { readText: async () => `${given.commandLine}\n` },
    arguments: { configFile: given.configFile, serverAddress: given.serverAddress },
    environment: given.environment ?? {},
  })
}
