import { describe, expect, it } from 'vitest'
import { Interrupted, Interruptions } from '../../../src/client/terminal/interruptions.ts'

describe('Interruptions', () => {
  it('ends the run at the first signal while there is no container', () => {
    const interruptions = new Interruptions()
    interruptions.receive('SIGTERM')
    expect(interruptions.signal.reason).toBeInstanceOf(Interrupted)
    expect(interruptions.signal.reason).toMatchObject({ exitStatus: 143 })
  })

  it('forwards one signal to the container, and ends the run at the second', () => {
    const interruptions = new Interruptions()
    const forwarded: number[] = []
    interruptions.forwardNext((signalNumber) => forwarded.push(signalNumber))
    interruptions.receive('SIGINT')
    expect([forwarded, interruptions.signal.aborted]).toEqual([[2], false])
    interruptions.receive('SIGINT')
    expect([forwarded, interruptions.signal.aborted]).toEqual([[2], true])
  })

  it('ends the run when the container has ended', () => {
    const interruptions = new Interruptions()
    interruptions.forwardNext(() => {
      throw new Error('the container is gone')
    })
    interruptions.forwardNext(undefined)
    interruptions.receive('SIGHUP')
    expect(interruptions.signal.aborted).toBe(true)
  })
})
