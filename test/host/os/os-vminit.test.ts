import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { buildNative } from '../../../src/build/native.ts'

/** Runs a program as vminit's agent and returns its exit status and the lines that it wrote. */
async function runBelowVminit(
  program: string,
  ...args: string[]
): Promise<{ status: number; lines: string[] }> {
  const { vminit, addon } = await buildNative()
  const command = ['--', process.execPath, join(import.meta.dirname, program), addon, ...args]
  const wrapper = spawn(vminit, command, { stdio: ['ignore', 'pipe', 'inherit'] })
  const chunks: Buffer[] = []
  wrapper.stdout.on('data', (chunk: Buffer) => chunks.push(chunk))
  const [status] = await once(wrapper, 'close')
  return { status, lines: Buffer.concat(chunks).toString().trim().split('\n') }
}

describe('the channel to vminit', () => {
  it('reports the exits of orphans, and takes the status to end with', async () => {
    const { status, lines } = await runBelowVminit('os-agent-below-vminit.ts')
    expect(lines).toEqual(['code 9', 'signal 15', 'asked for late: 3'])
    expect(status).toBe(42)
  })
})
