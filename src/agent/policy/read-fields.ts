/**
 * Whether a rule of the policy may read the input's member `field`. False only when it is certain: Rego reaches the input
 * by the word `input` alone, so it is enough that the text has it nowhere but in `input.NAME` with other names. Lines that
 * are comments are passed over, unless they could end a text that began before them.
 */
export function mayReadField(text: string, field: string): boolean {
  return new RegExp(`\\binput\\b(?!\\.(?!${field}\\b)[A-Za-z_])`).test(text.replace(COMMENT_LINES, ''))
}

const COMMENT_LINES = /^[ \t]*#[^"`\r\n\v\f\u0085\u2028\u2029]*$/gm
