import { describe, expect, it } from 'vitest'
import { type FeatureSources, featuresOf } from '../../../src/agent/introspection/features.ts'

function consoleWith(config: Partial<FeatureSources['config']>, noShell?: string) {
  const off = {
    ...{ memAgentEnable: false, visibleCdiDevices: false, passfdListenerPort: 0, outputReplayBytes: 0 },
    ...{ debugConsole: false, debugConsolePort: 0 },
  }
  const sources = { policy: { isSupported: () => false }, config: { ...off, ...config }, os: {}, noShell }
  return featuresOf(sources).find(({ name }) => name === 'debug console')
}

describe('the feature of a debug console', () => {
  const isOff = 'agent.debug_console is not set, want agent.debug_console agent.debug_console_vport=1026'

  it('names everything that is missing at once', () => {
    expect(consoleWith({})?.missing).toBe(isOff)
    expect(consoleWith({}, 'no shell: none')?.missing).toBe(`${isOff}; no shell: none`)
    expect(consoleWith({ debugConsole: true }, 'no shell: none')?.missing).toBe('no shell: none')
  })

  it('reports where it is', () => {
    expect(consoleWith({ debugConsole: true })).toMatchObject({ missing: undefined, detail: '/dev/console' })
    expect(consoleWith({ debugConsole: true, debugConsolePort: 1026 })).toMatchObject({ detail: 'port 1026' })
  })
})
