import { describe, expect, it } from 'vitest'
import { parseExactly, patchJson } from '../../../src/agent/policy/json-patch.ts'

const DOCUMENT = '{"pstate":{"list":[1,2],"big":18446744073709551615,"a/b~c":{"x":[]}},"other":1}'

function patched(...operations: readonly unknown[]): unknown {
  const { pstate } = JSON.parse(patchJson(DOCUMENT, operations, '/pstate'))
  return pstate
}

describe('patchJson', () => {
  it.each([
    [{ op: 'add', path: '/pstate/new', value: { y: 1 } }, { new: { y: 1 } }],
    [{ op: 'add', path: '/pstate/list', value: 3 }, { list: 3 }],
    [{ op: 'add', path: '/pstate/list/-', value: 3 }, { list: [1, 2, 3] }],
    [{ op: 'add', path: '/pstate/list/2', value: 3 }, { list: [1, 2, 3] }],
    [{ op: 'add', path: '/pstate/list/0', value: null }, { list: [null, 1, 2] }],
    [{ op: 'add', path: '/pstate/a~1b~0c/x/-', value: 1 }, { 'a/b~c': { x: [1] } }],
    [{ op: 'add', path: '/pstate/', value: 1 }, { '': 1 }],
    [{ op: 'replace', path: '/pstate/list/1', value: 9 }, { list: [1, 9] }],
    [{ op: 'copy', from: '/pstate/list', path: '/pstate/copy' }, { copy: [1, 2] }],
    [{ op: 'move', from: '/pstate/list/0', path: '/pstate/list/1' }, { list: [2, 1] }],
    [{ op: 'test', path: '/pstate/list', value: [1, 2] }, {}],
  ])('applies %j', (operation, change) => {
    expect(patched(operation)).toEqual({ ...JSON.parse(DOCUMENT).pstate, ...change })
  })

  it('removes', () => {
    const removed = ['/pstate/a~1b~0c', '/pstate/list/0', '/pstate/big'].map((path) => ({
      op: 'remove',
      path,
    }))
    expect(patched(...removed)).toEqual({ list: [2] })
  })

  it('applies operations in order', () => {
    const added = { op: 'add', path: '/pstate/n', value: [] }
    expect(patched(added, { op: 'add', path: '/pstate/n/-', value: 1 })).toMatchObject({ n: [1] })
  })

  it('replaces the whole state', () => {
    expect(patched({ op: 'replace', path: '/pstate', value: { fresh: true } })).toEqual({ fresh: true })
  })

  it('keeps every digit of a number', () => {
    const operations = [
      { op: 'copy', from: '/pstate/big', path: '/pstate/copy' },
      ...(parseExactly('[{"op":"add","path":"/pstate/added","value":0.12345678901234567891}]') as unknown[]),
    ]
    const text = patchJson(DOCUMENT, operations, '/pstate')
    expect(text).toContain('"big":18446744073709551615')
    expect(text).toContain('"copy":18446744073709551615')
    expect(text).toContain('"added":0.12345678901234567891')
  })

  it('treats names of JavaScript’s own properties as plain names', () => {
    const operations = ['__proto__', 'constructor'].map((name) => ({
      op: 'add',
      path: `/pstate/${name}`,
      value: 1,
    }))
    expect(patchJson(DOCUMENT, operations, '/pstate')).toContain('"__proto__":1,"constructor":1')
    expect(() => patched({ op: 'remove', path: '/pstate/toString' })).toThrow('toString: not found')
  })

  it.each([
    [{ op: 'add', path: '/other', value: 1 }, '/other: outside of /pstate'],
    [{ op: 'add', path: '', value: 1 }, ': outside of /pstate'],
    [{ op: 'add', path: '/pstate2', value: 1 }, '/pstate2: outside of /pstate'],
    [{ op: 'copy', from: '/other', path: '/pstate/x' }, '/other: outside of /pstate'],
    [{ op: 'move', from: '/other', path: '/pstate/x' }, '/other: outside of /pstate'],
    [{ op: 'test', path: '/other', value: 1 }, '/other: outside of /pstate'],
    [{ op: 'move', from: '/pstate', path: '/pstate/x' }, 'from: an object cannot move into itself'],
    [{ op: 'add', path: '/pstate/x/y', value: 1 }, 'x: not found'],
    [{ op: 'add', path: '/pstate/list/3', value: 1 }, '/pstate/list/3: not an index of the array'],
    [{ op: 'add', path: '/pstate/list/01', value: 1 }, '/pstate/list/01: not an index of the array'],
    [{ op: 'add', path: '/pstate/list/x', value: 1 }, '/pstate/list/x: not an index of the array'],
    [{ op: 'add', path: '/pstate/big/x', value: 1 }, '/pstate/big/x: its parent is not an object or array'],
    [{ op: 'add', path: '/pstate/~2', value: 1 }, '~2: not a JSON pointer'],
    [{ op: 'add', path: '/pstate/x' }, 'value: missing'],
    [{ op: 'add', path: 7, value: 1 }, 'path: not a text'],
    [{ op: 'replace', path: '/pstate/x', value: 1 }, 'x: not found'],
    [{ op: 'replace', path: '/pstate/list/-', value: 1 }, 'end: not found'],
    [{ op: 'remove', path: '/pstate/x' }, 'x: not found'],
    [{ op: 'test', path: '/pstate/list', value: [2, 1] }, 'test: the values differ'],
    [{ op: 'test', path: '/pstate/big', value: 18446744073709552000 }, 'test: the values differ'],
    [{ op: 'merge', path: '/pstate' }, 'op: unknown operation "merge"'],
    [{ path: '/pstate' }, 'op: missing'],
    ['add', 'path: missing'],
    [null, 'path: missing'],
  ])('refuses %j', (operation, reason) => {
    const first = { op: 'test', path: '/pstate/list/0', value: 1 }
    expect(() => patched(first, operation)).toThrow(`ops[1]: ${reason}`)
  })
})
