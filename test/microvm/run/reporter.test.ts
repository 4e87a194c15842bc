import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { reporterOn, Timings } from '../../../src/microvm/run/reporter.ts'

function timingsAt(...times: number[]): Timings {
  const queue = [...times]
  return new Timings(() => queue.shift() ?? 0)
}

function output(isTTY: boolean) {
  const written: string[] = []
  const write = (chunk: unknown, _encoding: unknown, done: () => void) => {
    written.push(String(chunk))
    done()
  }
  return { stderr: Object.assign(new Writable({ write }), { isTTY }), written }
}

describe('reporterOn', () => {
  it.each([
    [{ isTTY: true, tty: true }, 'console: a\r\n'],
    [{ isTTY: true, tty: false }, 'console: a\n'],
    [{ isTTY: false, tty: true }, 'console: a\n'],
  ])('begins each line at the left, also of a raw terminal: %j', ({ isTTY, tty }, text) => {
    const { stderr, written } = output(isTTY)
    reporterOn(stderr, { tty, verbose: true }).console('a')
    expect(written).toEqual([text])
  })

  it('shows on a terminal that it waits, and takes the line away at the next one or at the end', () => {
    const { stderr, written } = output(true)
    const reporter = reporterOn(stderr, { tty: false, verbose: false })
    const end = reporter.wait('booting')
    reporter.progress('fetching')
    end()
    reporter.wait('booting')()
    const erased = '\r\u001b[K'
    expect(written).toEqual([
      ...['microvm: booting …', erased, 'microvm: fetching\n'],
      ...['microvm: booting …', erased],
    ])
  })

  it.each([
    ['a pipe', false, false],
    ['a terminal that shows the console', true, true],
  ])('shows nothing of a wait on %s', (_where, isTTY, verbose) => {
    const { stderr, written } = output(isTTY)
    reporterOn(stderr, { tty: false, verbose }).wait('booting')()
    expect(written).toEqual([])
  })
})

describe('Timings', () => {
  it('measures each phase from the end of the previous one', () => {
    const timings = timingsAt(100, 1100, 1350)
    timings.end('kernel')
    timings.end('agent')
    timings.end('kernel')
    expect(timings.milliseconds).toEqual({ kernel: 1000, agent: 250, total: 1250 })
    expect(JSON.parse(timings.json())).toEqual(timings.milliseconds)
  })

  it('leaves out a phase that did not happen', () => {
    const timings = timingsAt(0, 10)
    timings.end('create')
    expect(timings.table()).toBe('  create       10 ms\n  total        10 ms\n')
  })
})
