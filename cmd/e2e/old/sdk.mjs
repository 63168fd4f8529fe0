// The packages of this folder's generation, as a program would import them.
export * as core from 'e2b';
export * as interpreter from '@e2b/code-interpreter';
